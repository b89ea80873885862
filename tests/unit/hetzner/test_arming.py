# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs that share nothing but the API, and one server: whichever of them is late, and where, one of them has it."""

from __future__ import annotations

import datetime
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import Deadline, Refused
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_flow import IntentStore
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_arming import Arming, given_up_at
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_servers import ServerReads
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import MachineRun
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import LABEL
from tests.waiting import until

NAME = "n1"
#: Seconds from a request to its effect, and from the end of an action to when a run sees it.
REQUEST, TICK = 0.25, 0.5


class SharedClock:
    """One clock for several threads, of which only that runs which has to go on first; `sleep` takes no time."""

    def __init__(self, threads: int) -> None:
        self.now = 0.0
        self._threads = threads
        self._wakes: dict[int, float] = {}
        self._changed = threading.Condition()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let others go on until these seconds are over."""
        me = threading.get_ident()
        with self._changed:
            self._wakes[me] = self.now + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_next(me))
            self.now = max(self.now, self._wakes.pop(me))

    def _is_next(self, thread: int) -> bool:
        first = min(self._wakes, key=lambda one: (self._wakes[one], one))
        return len(self._wakes) == self._threads and first == thread

    def end(self) -> None:
        """This thread goes on no more."""
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()


class Project:
    """What the API knows of the server. ``takes``: seconds of an arming."""

    def __init__(self, clock: SharedClock, takes: float) -> None:
        self.clock, self.takes = clock, takes
        self.labels = {LABEL: NAME}
        self.actions = [self.action("create_server", 1, -takes, 0.0)]
        self.armed_for = ""
        self.boots: list[str] = []

    @staticmethod
    def stamp(moment: float) -> str:
        """As the API writes a time: whole seconds."""
        return datetime.datetime.fromtimestamp(1e9 + moment // 1, datetime.UTC).isoformat()

    def action(self, command: str, number: int, began: float, ended: float) -> dict:
        return {"id": number, "command": command, "began": began, "ended": ended}

    def shown(self, action: dict) -> dict:
        """An action as the API shows it now."""
        over = action["ended"] <= self.clock.now
        return {
            "id": action["id"], "command": action["command"], "status": "success" if over else "running",
            "started": self.stamp(action["began"]), "finished": self.stamp(action["ended"]) if over else None,
        }  # fmt: skip

    @property
    def locked(self) -> bool:
        return any(one["ended"] > self.clock.now for one in self.actions)

    def begin(self, command: str, takes: float) -> dict:
        self.actions.insert(0, self.action(command, self.actions[0]["id"] + 1, self.clock.now, self.clock.now + takes))
        return self.shown(self.actions[0])


class Client:
    """The requests of one run, in place of `Servers` and `ActionBoard`; it is late before its request ``number``."""

    def __init__(self, project: Project, run: str, number: int = -1, late: float = 0.0) -> None:
        self.project, self.run, self.number, self.late = project, run, number, late
        self.sent: list[str] = []

    def _request(self, what: str) -> None:
        if len(self.sent) == self.number:
            self.project.clock.sleep(self.late)
        self.sent.append(what)
        self.project.clock.sleep(REQUEST)

    def now(self) -> float:
        return 1e9 + self.project.clock.now // 1

    def history(self, _server, _deadline, recent=False):
        self._request("history")
        return [self.project.shown(one) for one in self.project.actions]

    def by_id(self, server, _deadline):
        self._request("by_id")
        return self._server()

    def labelled(self, names, _deadline):
        self._request("labelled")
        return {NAME: self._server()}

    def _server(self):
        project = self.project
        status = "running" if project.boots else "off"
        return {"id": 1, "name": NAME, "labels": dict(project.labels), "status": status,
                "rescue_enabled": bool(project.armed_for)}  # fmt: skip

    def relabel(self, _server, labels, _deadline):
        self._request("relabel")
        self.project.labels = labels

    def enable_rescue(self, _server, key_ids, _deadline, locked=None):
        self._request("enable_rescue")
        while self.project.locked:
            if locked is not None:
                locked()
            self.project.clock.sleep(1)
        self.project.armed_for = self.run
        return self.project.begin("enable_rescue", self.project.takes)

    def disable_rescue(self, _server, _deadline):
        self._request("disable_rescue")
        while self.project.locked:
            self.project.clock.sleep(1)
        self.project.armed_for = ""
        return self.project.begin("disable_rescue", REQUEST)

    def power_on(self):
        self._request("power_on")
        while self.project.locked:
            self.project.clock.sleep(1)
        if not self.project.boots:
            self.project.boots.append(self.project.armed_for)
            self.project.armed_for = ""
        return self.project.begin("start_server", REQUEST)

    def wait(self, action, _deadline):
        """Of the action board."""
        while True:
            kept = next(one for one in self.project.actions if one["id"] == action["id"])
            if kept["ended"] <= self.project.clock.now:
                return self.project.shown(kept)
            self.project.clock.sleep(kept["ended"] - self.project.clock.now + TICK)


def work(client: Client, made: bool, begins: float) -> str:
    """What hcloud_rescue does with one server; returns what speaks against this run, or nothing."""
    clock = client.project.clock
    try:
        clock.sleep(begins)
        server = client._server()
        made_by = client.project.shown(client.project.actions[-1]) if made else None
        run = MachineRun(NAME)
        reads = ServerReads(client)
        arming = Arming(client, reads, client, IntentStore(None, {}), run, made_by)
        deadline = Deadline(600, "the test", clock, clock.sleep)
        if not made and (server["status"] != "off" or not arming.read_history(server, deadline)):
            return "it was started before"
        arming.arm(server, [], deadline, armed_before=server["rescue_enabled"])
        arming.look_again(server, deadline)
        arming.look_again(server, deadline, client.power_on())
        return ""
    except Refused as error:
        return str(error)
    finally:
        clock.end()


def both(takes: float, begins: float, number: int, late: float) -> tuple[Project, list[Client], list[str]]:
    """The run that made the server is ``late`` before its request ``number``; the other one ``begins`` at some time."""
    project = Project(SharedClock(2), takes)
    clients = [Client(project, "maker", number, late), Client(project, "other")]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(work, clients[0], True, 0.0)
        second = pool.submit(work, clients[1], False, begins)
        return project, clients, [first.result(600), second.result(600)]


@pytest.mark.parametrize("takes", [0.5, 12.0])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("begins", [0.3, 5.0])
def test_a_run_that_is_late_leaves_what_another_one_took(takes, number, begins):
    for tenths in range(0, 700 if takes > 1 else 200, 7):
        project, _clients, reasons = both(takes, begins, number, tenths / 10)
        where = f"late by {tenths / 10} s: {reasons}, {project.actions}"
        assert reasons.count("") == 1, where
        assert len(project.boots) == 1, where
        assert not project.armed_for, where


@pytest.mark.parametrize("takes", [0.5, 4.5, 5.5, 20.0])
def test_a_prompt_run_sends_no_request_more(takes):
    _project, clients, reasons = both(takes, 0.3, -1, 0.0)
    assert clients[0].sent == ["enable_rescue", "power_on"]
    assert reasons[0] == ""
    assert "another run" in reasons[1] or "started before" in reasons[1]


def test_a_late_run_that_is_alone_sends_one_request_more():
    _project, clients, reasons = both(0.5, 100.0, 0, 10.0)
    assert clients[0].sent == ["enable_rescue", "labelled", "power_on"]
    assert reasons == ["", "it was started before"]


@pytest.mark.parametrize(
    ("began", "ended", "end"),
    [("00:00:00", "00:00:01", 7), ("00:00:00", "00:00:04", 10), ("00:00:00", "00:00:05", 35), ("00:00:00", None, 6),
     (None, None, None), ("x", "00:00:01", None)],
)  # fmt: skip
def test_when_a_run_is_taken_for_ended(began, ended, end):
    """After an action that took long, for which it waits with few looks, it may come later."""
    action = {"started": began and f"1970-01-01T{began}Z", "finished": ended and f"1970-01-01T{ended}Z"}
    assert given_up_at(action) == end


def test_reads_at_the_same_time_are_one_request():
    """One thread reads, for all that wait; the name that an answer lacks is looked up alone."""
    names = [f"n{number}" for number in range(60)]
    asked, first, free = [], threading.Event(), threading.Event()

    class Servers:
        def labelled(self, batch, _deadline):
            asked.append(list(batch))
            if len(asked) == 1:
                first.set()
                free.wait(600)
            return {name: {"name": name} for name in batch if name != "n7"}

        def by_id(self, server, _deadline):
            asked.append(server["name"])

    reads = ServerReads(Servers())
    with ThreadPoolExecutor(60) as pool:
        answers = [pool.submit(reads.present, {"name": names[0]}, None)]
        assert first.wait(600)
        answers += [pool.submit(reads.present, {"name": name}, None) for name in names[1:]]
        until(lambda: len(reads._asked) == 59, "all threads")
        free.set()
        found = [answer.result(600) for answer in answers]
    assert [one and one["name"] for one in found] == [name if name != "n7" else None for name in names]
    assert sorted(map(len, asked)) == [1, 2, 9, 50]
    assert "n7" in asked


def test_a_read_that_fails_is_the_failure_of_one_thread():
    reads, calls = ServerReads(None), []

    class Servers:
        def labelled(self, batch, _deadline):
            calls.append(list(batch))
            if len(calls) == 1:
                raise Refused("the first one")
            return {name: {"name": name} for name in batch}

    reads = ServerReads(Servers())
    reads._asked.add("n2")
    with pytest.raises(Refused):
        reads.present({"name": "n1"}, None)
    assert reads.present({"name": "n2"}, None) == {"name": "n2"}
    assert calls == [["n1", "n2"], ["n2"]]
