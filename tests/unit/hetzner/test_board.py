# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for actions: who is woken by what, and with how many requests."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.action_board import (
    BATCH,
    ActionBoard,
    ActionFailed,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    Deadline,
    FleetError,
    MachineError,
    TimeLimit,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Api
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_servers import first_address
from tests.unit.hetzner.scripted import Reply, ScriptedServer, failure
from tests.waiting import until


def action(number, status="running", **more):
    return {"id": number, "command": "reset_server", "status": status, "progress": 40, **more}


def answer(*actions):
    return Reply(200, {"actions": list(actions)})


def board(server, clock=time.monotonic):
    return ActionBoard(Api("token", server.endpoint), clock)


def soon():
    return Deadline(600, "the state")


def test_an_action_that_ended_already_costs_no_request():
    with ScriptedServer(answer()) as server:
        assert board(server).wait(action(1, "success"), soon())["status"] == "success"
        with pytest.raises(ActionFailed, match=r"reset_server \(id 2\) failed: no luck \(action_failed\)"):
            board(server).wait(action(2, "error", error={"code": "action_failed", "message": "no luck"}), soon())
    assert server.requests == []


def test_many_waiters_share_their_requests():
    numbers = range(1, 31)
    batches = [answer(*(action(number, "success") for number in numbers))]
    with ScriptedServer(*batches) as server:
        began: list[float] = []  # time passes from the moment on when all of them wait
        common = board(server, lambda: time.monotonic() - began[0] if began else 0.0)
        with ThreadPoolExecutor(len(numbers)) as pool:
            done = pool.map(lambda number: common.wait(action(number), soon())["id"], numbers)
            until(lambda: len(common._waiters) == len(numbers), "thirty waiters")
            began.append(time.monotonic())
    assert list(done) == list(numbers)
    assert len(server.requests) <= 4
    assert all(path.count("id=") <= BATCH for _method, path, _headers, _body in server.requests)


@pytest.mark.parametrize(
    ("said", "since_answer", "age"),
    [(0.95, None, 0.95), (0.95, 0.2, 0.2), (0.95, 5, 0.95), (0.95, -3, 0.95), (12.0, 0.1, 12.0), (-0.5, 0.2, 0)],
)
def test_whole_seconds_make_no_action_older_than_it_is(monkeypatch, said, since_answer, age):
    """After a lost answer, the one that came in the end says nothing of its age."""
    common, since = ActionBoard(Api("token", "http://127.0.0.1:1"), lambda: 50.0), []
    monkeypatch.setattr(common._api, "server_time", lambda: 100.0 + said)
    monkeypatch.setattr(common._schedule, "add", lambda _number, _command, at: since.append(at))
    monkeypatch.setattr(common, "_poll", lambda: None)
    known = {} if since_answer is None else {"since_answer": since_answer}
    with pytest.raises(TimeLimit):
        common.wait(action(1, started="1970-01-01T00:01:40+00:00"), Deadline(0, "the state"), **known)
    assert since == [pytest.approx(50 - age)]


def test_a_lost_look_is_repeated():
    with ScriptedServer(Reply(drop=True), answer(action(1, "success"))) as server:
        assert board(server).wait(action(1), soon())["id"] == 1


def test_an_action_that_the_api_no_longer_knows_is_an_error():
    with ScriptedServer(answer()) as server, pytest.raises(MachineError, match=r"does not know .* \(id 1\) any more"):
        board(server).wait(action(1), soon())
    assert len(server.requests) == 3


def test_credentials_that_are_refused_meanwhile_wake_everybody():
    with ScriptedServer(failure(401, "unauthorized")) as server, pytest.raises(FleetError, match="api_token"):
        board(server).wait(action(1), soon())


def test_the_time_limit_says_how_far_it_was():
    with ScriptedServer(answer(action(1, progress=70))) as server:

        class AfterTwoLooks(Deadline):
            """What the first look brought is known when the second one is taken."""

            def left(self):
                until(lambda: len(server.requests) >= 2, "two looks")
                return 0.0

        message = r"the state was not reached within 2 s: .* \(id 1\) is still running at 70 %"
        with pytest.raises(TimeLimit, match=message):
            board(server).wait(action(1), AfterTwoLooks(2, "the state"))


@pytest.mark.parametrize(
    ("network", "address"), [("2001:db8:0:1::/64", "2001:db8:0:1::1"), (None, None), ("nonsense", None)]
)
def test_address_in_an_ipv6_network(network, address):
    assert first_address(network) == address
