# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's queue, and what it does with its rights."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import controller as run
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import kubernetes_api
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.controller import WorkQueue
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.watched import Problems
from tests.unit.image_server.controller.objects import image, with_metadata, with_status


def test_keys_come_in_the_order_they_are_due():
    queue = WorkQueue()
    for key, delay in (("later", 0.05), ("first", -1000), ("never", 1000)):
        queue.put(key, delay)
    assert [queue.take(), queue.take()] == ["first", "later"]
    assert len(queue) == 3


def test_a_key_waits_once_and_the_earlier_moment_counts():
    queue = WorkQueue()
    queue.put("a", 1000)
    queue.put("a")
    queue.put("a", 500)
    assert len(queue) == 1
    assert queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


def test_what_is_put_while_a_worker_has_it_comes_again():
    queue = WorkQueue()
    queue.put("a")
    assert queue.take() == "a"
    queue.put("a")
    queue.put("b")
    assert queue.take() == "b"
    queue.done("a", 1000)
    assert queue.take() == "a"


def test_done_with_a_delay_puts_it_back():
    queue = WorkQueue()
    queue.put("a")
    queue.done(queue.take(), 0.01)
    assert queue.take() == "a"


def test_closing_lets_every_worker_go():
    queue = WorkQueue()
    taken: list[object] = []
    workers = [threading.Thread(target=lambda: taken.append(queue.take())) for _number in range(3)]
    for worker in workers:
        worker.start()
    queue.close()
    for worker in workers:
        worker.join(10)
    assert taken == [None, None, None]


def test_many_workers_never_share_a_key_and_lose_none():
    queue = WorkQueue()
    held: set[object] = set()
    seen: dict[object, int] = {}
    wrong: list[object] = []
    lock = threading.Lock()

    def work() -> None:
        while (key := queue.take()) is not None:
            with lock:
                if key in held:
                    wrong.append(key)
                held.add(key)
            with lock:
                held.discard(key)
                seen[key] = seen.get(key, 0) + 1
                over = all(seen.get(number, 0) >= 2 for number in range(50))
            queue.done(key, 0 if seen[key] < 2 else None)
            if over:
                queue.close()

    workers = [threading.Thread(target=work) for _number in range(4)]
    for number in range(50):
        queue.put(number)
        queue.put(number)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert not wrong
    assert sorted(seen) == list(range(50))
    assert min(seen.values()) >= 2


# --- what the controller does with its rights: Secrets are watched where that is one, else read now and then


EVERYTHING = {**kubernetes_api.IMAGE_RIGHTS, ("", "secrets", ""): ("get", "list", "watch", "update")}


class FakeApi:
    """An API server that says which rights there are."""

    def __init__(self, given):
        self.given = given

    def missing_rights(self, namespace, rights):
        wanted = [(place, verb) for place, verbs in rights.items() for verb in verbs]
        return [f"{verb} on {place[1]}" for place, verb in wanted if verb not in self.given.get(place, ())]

    def kind_exists(self):
        return True


def controller(monkeypatch, given, namespaces):
    monkeypatch.setattr(run.kubernetes_api, "configuration", lambda environ: None)
    monkeypatch.setattr(run, "Api", lambda connection: FakeApi(given))
    bases = type("Bases", (), {"state": None, "supports": None})
    return run.Controller(run.Settings(namespaces=namespaces), None, bases, Problems(), {})


@pytest.mark.parametrize(
    ("given", "namespaces", "watched"),
    [
        (EVERYTHING, (), True),
        (EVERYTHING, ("metal3",), True),
        (kubernetes_api.IMAGE_RIGHTS, (), False),
        ({**kubernetes_api.IMAGE_RIGHTS, **kubernetes_api.SECRET_RIGHTS}, ("metal3",), False),
    ],
)
def test_secrets_are_watched_where_that_is_a_right(monkeypatch, given, namespaces, watched):
    found = controller(monkeypatch, given, namespaces)
    found._check()
    assert found._watched is watched
    asked = []
    monkeypatch.setattr(
        run, "ClusterWatch", lambda *arguments: asked.append(arguments) or type("W", (), {"run": print})()
    )
    found._watching()
    assert (asked[0][3] is not None) is watched


def test_in_one_namespace_secrets_have_to_be_read(monkeypatch):
    with pytest.raises(kubernetes_api.Forbidden, match="lacks get on secrets; update on secrets"):
        controller(monkeypatch, kubernetes_api.IMAGE_RIGHTS, ("metal3",))._check()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (kubernetes_api.Forbidden("GET /a: HTTP 403: no"), "GET /a: HTTP 403: no"),
        (kubernetes_api.Unreachable("no answer"), "no answer"),
        (KeyError("x"), "a defect of the image server: KeyError"),
    ],
)
def test_an_object_that_cannot_be_looked_at_is_a_problem_until_it_can(monkeypatch, caplog, error, said):
    found = controller(monkeypatch, EVERYTHING, ())
    outcomes = [error, error, kubernetes_api.Conflict("another replica"), 7.0]

    def reconcile(*_arguments):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    found._reconciler.reconcile = reconcile
    key = ("metal", "host-1")
    delays = [found._reconcile(key), found._reconcile(key)]
    assert delays == [0.5, 1.0]
    assert found._problems.all() == {"image metal/host-1": said}
    assert sum(said in record.getMessage() for record in caplog.records) == 1  # not at each attempt
    assert found._reconcile(key) < 1
    assert len(found._problems) == 1
    assert found._reconcile(key) == 7
    assert found._problems.all() == {}


def test_an_image_that_is_not_served_is_a_problem_and_counts(monkeypatch):
    found = controller(monkeypatch, EVERYTHING, ())
    body = with_metadata(image(), finalizers=["preprovisioningimage.metal3.io"])
    said = "Architecture not supported"
    statuses = [{"conditions": [{"type": "Error", "status": "True", "message": said}]}, {}]

    def reconcile(_namespace, _name, remember):
        remember(with_status(body, statuses.pop(0)))

    found._reconciler.reconcile = reconcile
    found._reconcile(("metal", "host-1"))
    assert found._problems.all() == {"image metal/host-1": said}
    assert found.failed == 1
    found._reconcile(("metal", "host-1"))
    assert found._problems.all() == {}
    assert found.failed == 0


def test_the_problem_of_an_object_goes_with_it(monkeypatch):
    found = controller(monkeypatch, EVERYTHING, ())
    found._problems.report("image metal/host-1", "HTTP 403")
    found._image_event("DELETED", {"metadata": {"namespace": "metal", "name": "host-1"}})
    assert found._problems.all() == {}
