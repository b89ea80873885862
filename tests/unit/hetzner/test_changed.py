# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a machine or image is called changed whose request failed: not when the API refused it, else it is.

What became of a request without an answer is unknown, so that it counts as a change.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_client, robot_servers, snapshots
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import Deadline
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_types import Choice
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Api
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_machines import MachineFleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import MachineRun, run_all
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import IMAGE_LABEL, LABEL, MADE_LABEL
from tests.clock import Clock
from tests.unit.hetzner.scripted import Reply, ScriptedServer, failure

OURS = {"id": 7, "name": "n1", "labels": {LABEL: "n1"}, "status": "off", "private_net": []}
PLACES = [{"network": number, "ip": None, "alias_ips": [], "ip_range": None} for number in (3, 4)]
DONE = {"id": 1, "command": "any", "status": "success", "progress": 100}
MADE = {"server": OURS, "action": DONE}
#: an answer, and whether the request may have been carried out; no time is left for a second one
ENDS = [
    pytest.param(failure(422, "invalid_input"), False, id="refused"),
    pytest.param(failure(423, "locked"), False, id="locked-until-the-end"),
    pytest.param(Reply(drop=True), True, id="no-answer"),
    pytest.param(failure(500, "server_error"), True, id="error-of-the-api"),
]


def choice(name):
    return Choice({"name": name}, "fsn1", {"id": 9})


@contextlib.contextmanager
def time_for(pauses):
    """The time limit passes in the pause after so many, and no pause takes time."""
    left = [None] * pauses

    def sleep(self, _seconds, reason):
        if not left:
            raise self.exceeded(reason)
        left.pop()

    with mock.patch.object(Deadline, "sleep", sleep):
        yield


def brought_about(server, *replies, state="present", labels=None, places=(), choices=("cx23",), news=None, **more):
    """The result of one machine, for which the API answers this; there is time for one pause after a lost answer."""
    machine = {"name": "n1", "labels": labels or {}, **more}
    with ScriptedServer(*replies) as script, time_for(len(replies) > 1):
        api = Api("token", script.endpoint)
        api.news = news
        fleet = MachineFleet(api, [machine], state=state, timeout=60, delete=["n1"])
        fleet._found = {"n1": server} if server else {}
        fleet._resolved["n1"] = {
            "choices": [choice(name) for name in choices], "ssh_keys": [], "networks": list(places), "primary_ips": {},
            "firewalls": [], "placement_group": None,
        }  # fmt: skip
        run = MachineRun("n1")
        run_all(api, [run], fleet._bring_about)
    return run.result


@pytest.mark.parametrize(("answer", "unknown"), ENDS)
@pytest.mark.parametrize(
    ("server", "options"),
    [
        (None, {}),
        (OURS, {"labels": {"pool": "a"}}),
        ({**OURS, "labels": {}}, {"adopt": True}),
        (OURS, {"state": "absent"}),
        (OURS, {"state": "started"}),
    ],
    ids=["create", "relabel", "adopt", "delete", "start"],
)
def test_a_request_that_was_refused_changes_no_machine(server, options, answer, unknown):
    result = brought_about(server, answer, **options)
    assert result["failed"]
    assert (result["changed"], "diff" in result) == (unknown, unknown)
    assert (result["created"], result["fresh"]) == ((True, True) if unknown and not server else (False, None))
    assert not result["adopted"]


@pytest.mark.parametrize(
    ("server", "options", "answer"),
    [
        (None, {}, MADE),
        (OURS, {"labels": {"pool": "a"}}, {"server": OURS}),
        (OURS, {"state": "absent"}, {"action": DONE}),
        (OURS, {"state": "started"}, {"action": DONE}),
    ],
    ids=["create", "relabel", "delete", "start"],
)
def test_a_request_that_was_carried_out_changes_a_machine(server, options, answer):
    result = brought_about(server, Reply(201, answer), **options)
    assert (result["failed"], result["changed"], "diff" in result) == (False, True, True)


class Said:
    """In place of the news: what the result of a machine says when it comes into a state."""

    def __init__(self):
        self.lines, self.made = [], 0

    def follow(self, run):
        run.timeline.heard = lambda state: self.lines.append((state, dict(run.result)))

    def write(self, run, ended=False):
        """The end of a machine."""

    def requests(self, made):
        self.made = made


def test_the_news_of_a_new_server_say_which_one_it_is():
    """It costs money, and the run may be interrupted before anything else is said of it."""
    said = Said()
    there = {**OURS, "public_net": {"ipv4": {"ip": "203.0.113.5"}}, "created": "2026-11-21T10:00:00Z"}
    brought_about(None, Reply(201, {"server": there, "action": DONE}), news=said)
    (nothing, (state, result)) = said.lines
    assert (nothing[0], nothing[1]["id"], nothing[1]["changed"], said.made) == ("", None, False, 1)
    assert (state, result["id"], result["address"]) == ("Initializing", 7, "203.0.113.5")
    assert (result["changed"], result["created"], result["fresh"]) == (True, True, True)
    assert result["server_created"] == "2026-11-21T10:00:00Z"


def test_the_news_of_a_server_that_was_found_say_which_one_it_is():
    said = Said()
    brought_about(OURS, Reply(201, {"action": DONE}), state="absent", news=said)
    ((state, result),) = said.lines
    assert (state, result["id"], result["changed"]) == ("", 7, False)


def test_a_machine_for_which_there_is_no_room_is_not_changed():
    result = brought_about(None, failure(412, "resource_unavailable"), choices=("cx23", "cx33"))
    assert [one["server_type"] for one in result["tried"]] == ["cx23", "cx33"]
    assert (result["failed"], result["changed"], result["created"]) == (True, False, False)


@pytest.mark.parametrize("refused", [0, 1])
def test_the_networks_that_were_attached_count(refused):
    history = Reply(200, {"actions": [{"id": 2, "command": "create_server", "status": "success"}]})
    attached = [Reply(201, {"action": DONE})] * refused
    result = brought_about(OURS, history, *attached, failure(422, "invalid_input"), places=PLACES)
    assert (result["failed"], result["changed"]) == (True, bool(refused))
    assert [one["network"] for one in result.get("diff", {"after": {"networks": []}})["after"]["networks"]] == (
        [3, 4][:refused]
    )


def test_a_machine_that_was_labelled_and_not_started_is_changed():
    answers = [Reply(200, {"server": OURS}), failure(422, "invalid_input")]
    result = brought_about(OURS, *answers, state="started", labels={"pool": "a"})
    assert (result["failed"], result["changed"]) == (True, True)
    assert result["diff"]["after"] == {"labels": {LABEL: "n1", "pool": "a"}}


def test_a_refusal_after_a_lost_answer_says_nothing_of_the_lost_one():
    """The API knows the name, and does not show the server yet."""
    none = Reply(200, {"servers": []})
    answers = [Reply(drop=True), none, failure(409, "uniqueness_error"), none]
    result = brought_about(None, *answers)
    assert "uniqueness_error" in result["msg"]
    assert (result["failed"], result["changed"], result["created"]) == (True, True, True)


NO_SERVERS, NO_ACTIONS = Reply(200, {"servers": []}), Reply(200, {"actions": []})
RUNNING = Reply(200, {"server": {**OURS, "status": "running"}})


@pytest.mark.parametrize(
    ("server", "options", "answers"),
    [
        (OURS, {"state": "started"}, [NO_ACTIONS, *[failure(423, "locked")] * 8]),
        (None, {}, [NO_SERVERS, *[failure(409, "conflict")] * 8]),
        (OURS, {"state": "absent"}, [RUNNING, *[failure(423, "locked")] * 8]),
        (
            None,
            {"choices": ("cx23", "cx33")},
            [NO_SERVERS, failure(412, "resource_unavailable"), failure(409, "uniqueness_error"), NO_SERVERS],
        ),
        (None, {"choices": ("cx23", "cx33")}, [NO_SERVERS, *[failure(412, "resource_unavailable")] * 2]),
    ],
    ids=["start", "create", "delete", "create-with-choices", "no-room"],
)
def test_what_later_tries_say_does_not_make_a_lost_one_undone(server, options, answers):
    result = brought_about(server, Reply(drop=True), *answers, **options)
    assert (result["failed"], result["changed"], "diff" in result) == (True, True, True)
    assert result["created"] is (server is None)


def test_a_network_may_be_attached_by_a_lost_request():
    history = Reply(200, {"actions": [{"id": 2, "command": "create_server", "status": "success"}]})
    answers = [history, Reply(drop=True), NO_ACTIONS, failure(409, "server_already_attached")]
    result = brought_about(OURS, *answers, places=PLACES[:1])
    assert (result["failed"], result["changed"], "diff" in result) == (True, True, True)


# --- snapshots and names of dedicated servers


def snapshot_of(server, *replies, state="present"):
    """The result of one image, for which the API answers this."""
    wanted = {"name": "i1", "architecture": "x86", "server": "n1", "running": snapshots.SHUTDOWN, "labels": {}}
    with ScriptedServer(*replies) as script, time_for(len(replies) > 1):
        api = Api("token", script.endpoint)
        fleet = snapshots.ImageFleet(api, [wanted], state=state, timeout=60)
        run = snapshots.ImageRun(wanted)
        run.server = server
        fleet._found = {"i1": [] if state == "present" else OLD}
        fleet._used = {}
        run_all(api, [run], fleet._bring_about if state == "present" else fleet._prune)
    return run.result


OLD = [
    {
        "id": number, "type": "snapshot", "labels": {IMAGE_LABEL: "i1", MADE_LABEL: "i1"}, "architecture": "x86",
        "created": "2026-11-21T00:00:00Z", "status": "available",
    }
    for number in (6, 5)
]  # fmt: skip


@pytest.mark.parametrize(("answer", "unknown"), ENDS)
def test_a_request_that_was_refused_makes_and_deletes_no_snapshot(answer, unknown):
    made = snapshot_of(OURS, answer)
    assert (made["failed"], made["changed"], "diff" in made) == (True, unknown, unknown)
    stopped = snapshot_of({**OURS, "status": "running"}, answer)
    assert (stopped["failed"], stopped["changed"]) == (True, unknown)
    stopping = snapshot_of({**OURS, "status": "stopping"}, answer)
    assert (stopping["failed"], stopping["changed"]) == (True, False)
    deleted = snapshot_of(None, answer, state="absent")
    assert (deleted["failed"], deleted["changed"], "diff" in deleted) == (True, unknown, unknown)


def test_snapshots_that_were_deleted_count():
    result = snapshot_of(None, Reply(204), failure(422, "invalid_input"), state="absent")
    assert (result["failed"], result["changed"], result["deleted"]) == (True, True, [6])
    assert result["diff"]["before"] == {"snapshots": [6]}


def test_a_server_that_was_shut_down_for_a_snapshot_is_changed():
    running, off = {**OURS, "status": "running"}, Reply(200, {"server": OURS})
    result = snapshot_of(running, Reply(201, {"action": DONE}), off, failure(422, "invalid_input"))
    assert (result["failed"], result["changed"], "diff" in result) == (True, True, False)


@pytest.mark.parametrize(
    ("answer", "unknown"),
    [
        (Reply(404, {"error": {"status": 404, "code": "NOT_FOUND", "message": "no"}}), False),
        (Reply(drop=True), True),
        (Reply(500, {"error": {"status": 500, "code": "INTERNAL_ERROR", "message": "no"}}), True),
    ],
    ids=["refused", "no-answer", "error-of-the-api"],
)
def test_a_new_name_that_was_refused_changes_no_dedicated_server(answer, unknown):
    result = renamed(answer)
    assert (result["failed"], result["changed"], "diff" in result) == (True, unknown, unknown)
    assert result["server_name"] == "old"


LIMITED = {"status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "no", "interval": 3600, "max_request": 200}


@pytest.mark.parametrize("looked", [[], [Reply(200, {"server": {"server_name": "old"}})]], ids=["look", "next-try"])
def test_a_limit_after_a_lost_answer_does_not_make_it_undone(looked):
    result = renamed(Reply(drop=True), *looked, Reply(403, {"error": LIMITED}))
    assert (result["failed"], result["changed"], "diff" in result) == (True, True, True)


def test_a_limit_before_any_request_changes_no_dedicated_server():
    result = renamed(Reply(403, {"error": LIMITED}))
    assert (result["failed"], result["changed"], "diff" in result) == (True, False, False)


def renamed(*answers):
    """The result of a dedicated server that gets a new name, for which the webservice answers this."""
    clock = Clock()
    with ScriptedServer(*answers) as script, time_for(len(answers) > 1):
        api = robot_client.Robot("u", "p", script.endpoint, robot_client.Limits(clock), clock=clock, sleep=clock.sleep)
        fleet = robot_servers.RobotServerFleet(api, [], timeout=60, check_mode=False)
        run = MachineRun("n1")
        run.result.update(server_name="old", server_number=321)
        fleet._name(run, "new")
    return run.result
