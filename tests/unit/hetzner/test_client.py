# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client against a real web server: what is sent, how often, and what is never sent twice."""

from __future__ import annotations

import socket
import time
import uuid

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common.own_run import OwnRun
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    ApiError,
    Deadline,
    FleetError,
    MachineError,
    NoAnswer,
    TimeLimit,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Api, cloud_access
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_servers import Servers
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import LABEL
from tests.clock import Clock
from tests.unit.hetzner.scripted import Reply, ScriptedServer, failure
from tests.waiting import until

TOKEN = "a-token-that-is-secret"
BUDGET = {"RateLimit-Limit": "3600", "RateLimit-Remaining": "3000", "RateLimit-Reset": "2000000000"}
SERVER = {"id": 7, "name": "n1", "status": "off", "labels": {LABEL: "n1"}}


def soon(seconds=20):
    """A time limit whose pauses take no time."""
    clock = Clock()
    return Deadline(seconds, "the test", clock=clock, sleep=clock.sleep)


def api(server, **more):
    return Api(TOKEN, server.endpoint, **more)


def test_a_request_carries_token_agent_and_body_and_is_counted():
    with ScriptedServer(Reply(201, {"ok": 1}, BUDGET)) as server:
        client = api(server)
        assert client.request("POST", "/servers", machine="n1", json={"name": "n1"}) == {"ok": 1}
        client.request("GET", "/actions", params={"id": [1, 2]})
    (method, path, headers, body), (_get, query, _headers, _body) = server.requests
    assert (method, path, body) == ("POST", "/v1/servers", {"name": "n1"})
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["User-Agent"].startswith("kubenode.provision/")
    assert query == "/v1/actions?id=1&id=2"
    assert (client.calls, client.calls_of) == (2, {"n1": 1})
    assert client.budget.limit == 3600


def test_nothing_is_sent_for_a_run_that_was_killed():
    name = f"kubenode-test-{uuid.uuid4()}"
    with ScriptedServer(Reply(200, {"servers": []}, BUDGET)) as server:
        client = api(server)
        with socket.socket(socket.AF_UNIX) as run:
            run.bind(f"\0{name}")
            run.listen()
            client.own_run = OwnRun(name)
            client.request("GET", "/servers")
        with pytest.raises(FleetError, match="the run that this belongs to has ended"):
            client.request("GET", "/servers")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (failure(502, "bad_gateway"), ApiError),
        (Reply(502, text="<html>proxy</html>"), ApiError),
        (failure(504, "timeout"), ApiError),
        (failure(409, "conflict"), ApiError),
        (failure(429, "rate_limit_exceeded"), ApiError),
        (Reply(drop=True), NoAnswer),
    ],
)
def test_one_request_is_sent_once_after_any_fault(reply, error):
    with ScriptedServer(reply) as server:
        with pytest.raises(error):
            api(server, timeout=600).request("POST", "/servers", json={})
        # requests are taken in the order in which they were sent: a second one would be before this one
        with pytest.raises(error):
            api(server, timeout=600).request("GET", "/the-end")
    assert [method for method, *_rest in server.requests] == ["POST", "GET"]


def test_one_request_is_sent_once_when_no_answer_comes():
    with ScriptedServer(Reply(hang=True)) as server:
        with pytest.raises(NoAnswer):
            api(server, timeout=(600, 0.5)).request("POST", "/servers", json={})
        until(lambda: server.requests, "the request")
        with pytest.raises(NoAnswer):
            api(server, timeout=(600, 0.5)).request("GET", "/the-end")
        until(lambda: server.requests[-1][0] == "GET", "the last request", show=lambda: server.requests)
    assert [method for method, *_rest in server.requests] == ["POST", "GET"]


def test_errors_have_code_fields_and_correlation():
    details = {"fields": [{"name": "image", "messages": ["is gone"]}]}
    body = {"error": {"code": "invalid_input", "message": "bad\x1b[2J input", "details": details}}
    with ScriptedServer(Reply(422, body, {"X-Correlation-Id": "abc"})) as server, pytest.raises(ApiError) as caught:
        api(server).request("GET", "/servers")
    assert (caught.value.status, caught.value.code) == (422, "invalid_input")
    assert str(caught.value) == "bad [2J input (invalid_input, request abc) [image: is gone]"


@pytest.mark.parametrize(("code", "word"), [("unauthorized", "refused"), ("token_readonly", "only read")])
def test_credentials_end_everything_for_everybody(code, word):
    with ScriptedServer(failure(401, code)) as server:
        client = api(server)
        with pytest.raises(FleetError, match=f"api_token: .*{word}"):
            client.request("GET", "/servers")
        with pytest.raises(FleetError, match="api_token"):
            client.request("GET", "/servers")
    assert len(server.requests) == 1


def test_reads_are_repeated_until_they_succeed():
    with ScriptedServer(Reply(drop=True), failure(503, "unavailable"), Reply(200, {"servers": []})) as server:
        limit = soon(20)
        assert api(server).read("/servers", limit) == {"servers": []}
    assert len(server.requests) == 3
    assert 0.5 + 0.8 <= 20 - limit.left() <= 1.0 + 1.6


def test_reads_end_with_the_time_limit():
    clock = Clock()
    deadline = Deadline(4, "the test", clock=clock, sleep=clock.sleep)
    with ScriptedServer(failure(502, "bad_gateway")) as server, pytest.raises(TimeLimit, match=r"4 s: said the"):
        api(server).read("/servers", deadline)
    assert len(server.requests) == len(clock.slept) + 1
    assert clock.now <= 4


def test_no_server_listens():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        with pytest.raises(NoAnswer) as caught:
            Api(TOKEN, endpoint).request("POST", "/servers", json={})
    assert not caught.value.sent
    assert TOKEN not in str(caught.value)


def test_an_api_that_never_answered_is_not_waited_for():
    clock = Clock()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        client = Api(TOKEN, endpoint, clock=clock, sleep=clock.sleep)
        limit = Deadline(360, "the test", clock=clock, sleep=clock.sleep)
        with pytest.raises(FleetError, match="api_endpoint") as caught:
            client.read("/servers", limit)
        with pytest.raises(FleetError, match="api_endpoint"):
            client.request("GET", "/servers")
    assert 20 <= clock() <= 22
    text = str(caught.value)
    said = "ConnectionError ([Errno 111] Connection refused). Nothing was changed"
    assert text.startswith(f"api_endpoint: {endpoint} cannot be reached, for 20 s: {said}")
    assert TOKEN not in text


def test_an_api_that_has_answered_once_is_waited_for():
    clock = Clock()
    with socket.create_server(("127.0.0.1", 0)) as gone:
        client = Api(TOKEN, f"http://127.0.0.1:{gone.getsockname()[1]}/v1", clock=clock, sleep=clock.sleep)
    client._has_answered = True
    with pytest.raises(TimeLimit, match="Errno 111"):
        client.read("/servers", Deadline(100, "the test", clock=clock, sleep=clock.sleep))
    assert 80 <= clock() <= 100


def test_all_pages_are_read_unless_enough_is_known():
    def page(number, following):
        pagination = {"next_page": following, "last_page": 3}
        return Reply(200, {"servers": [{"name": f"n{number}"}], "meta": {"pagination": pagination}})

    with ScriptedServer(page(1, 2), page(2, 3), page(3, None)) as server:
        items, complete = api(server).read_all("/servers", "servers", soon())
    assert ([item["name"] for item in items], complete) == (["n1", "n2", "n3"], True)
    with ScriptedServer(page(1, 2), page(2, 3)) as server:
        items, complete = api(server).read_all("/servers", "servers", soon(), enough=lambda _items, left: left == 2)
    assert (len(items), complete) == (1, False)


@pytest.mark.parametrize("lost", [Reply(502, text="lost"), Reply(drop=True), failure(504, "timeout")])
def test_a_create_whose_answer_was_lost_is_looked_up_not_sent_again(lost):
    history = {"actions": [{"id": 3, "command": "create_server", "status": "running"}]}
    with ScriptedServer(lost, Reply(200, {"servers": [SERVER]}), Reply(200, history)) as server:
        found, action = Servers(api(server)).create("n1", {"name": "n1"}, soon())
    assert (found["id"], action["id"]) == (7, 3)
    assert [request[0] for request in server.requests] == ["POST", "GET", "GET"]


def test_a_create_that_did_not_happen_is_sent_again():
    made = Reply(201, {"server": SERVER, "action": {"id": 3, "status": "running"}})
    with ScriptedServer(Reply(502, text="lost"), Reply(200, {"servers": []}), made) as server:
        found, _action = Servers(api(server)).create("n1", {"name": "n1"}, soon())
    assert found["id"] == 7
    assert [request[0] for request in server.requests] == ["POST", "GET", "POST"]


def test_a_late_effect_of_the_lost_create_is_taken_over():
    taken = failure(409, "uniqueness_error")
    found_now = Reply(200, {"servers": [SERVER]})
    history = Reply(200, {"actions": [{"id": 3, "command": "create_server", "status": "running"}]})
    script = [Reply(502, text="lost"), Reply(200, {"servers": []}), taken, found_now, history]
    with ScriptedServer(*script) as server:
        found, _action = Servers(api(server)).create("n1", {"name": "n1"}, soon())
    assert found["id"] == 7


def test_a_taken_name_is_final_at_the_first_try():
    with ScriptedServer(failure(409, "uniqueness_error")) as server, pytest.raises(ApiError) as caught:
        Servers(api(server)).create("n1", {"name": "n1"}, soon())
    assert caught.value.code == "uniqueness_error"
    assert len(server.requests) == 1


def test_a_server_of_another_user_is_not_taken_for_the_lost_one():
    foreign = {**SERVER, "labels": {}}
    script = [Reply(502, text="lost"), Reply(200, {"servers": [foreign]})]
    with ScriptedServer(*script) as server, pytest.raises(MachineError, match="another server named 'n1' appeared"):
        Servers(api(server)).create("n1", {"name": "n1"}, soon())


def action_now(command, number, age=-3000.0):
    # ages are far apart, so that it does not matter how long a test takes to send its request
    started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - age))
    return {"id": number, "command": command, "status": "running", "started": started}


def test_a_reset_whose_answer_was_lost_is_found_in_the_history():
    history = {"actions": [action_now("reset_server", 9), action_now("reset_server", 5, age=3000)]}
    with ScriptedServer(Reply(200, SERVER), Reply(502, text="lost"), Reply(200, history)) as server:
        client = api(server)
        client.request("GET", "/servers/7")
        assert Servers(client).reset(SERVER, soon())["id"] == 9
    assert [request[0] for request in server.requests] == ["GET", "POST", "GET"]


def test_an_older_action_is_not_taken_for_the_lost_one():
    old = {"actions": [action_now("reset_server", 5, age=3000)]}
    new = Reply(201, {"action": action_now("reset_server", 9)})
    with ScriptedServer(Reply(200, SERVER), Reply(502, text="lost"), Reply(200, old), new) as server:
        client = api(server)
        client.request("GET", "/servers/7")
        assert Servers(client).reset(SERVER, soon())["id"] == 9
    assert [request[0] for request in server.requests] == ["GET", "POST", "GET", "POST"]


def test_a_locked_server_is_asked_again_without_a_look():
    done = Reply(201, {"action": {"id": 9, "status": "running"}})
    with ScriptedServer(failure(423, "locked"), done) as server:
        assert Servers(api(server)).power_on(SERVER, soon())["id"] == 9
    assert [request[0] for request in server.requests] == ["POST", "POST"]


def test_an_empty_budget_is_waited_for():
    clock = Clock(100.0)
    with ScriptedServer(Reply(200, {}, {**BUDGET, "RateLimit-Remaining": "0"})) as server:
        client = api(server, clock=clock, sleep=clock.sleep)
        client.request("GET", "/servers")
        assert clock.slept == []
        client.request("GET", "/servers")
    assert sum(clock.slept) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("params", "environment", "field"),
    [
        ({}, {}, "api_token: missing"),
        ({"api_token": "a b"}, {}, "api_token: contains"),
        ({"api_token": "a\nb"}, {}, "api_token: contains"),
        ({"api_token": "t", "api_endpoint": "ftp://x"}, {}, "api_endpoint: 'ftp://x'"),
        ({}, {"HCLOUD_TOKEN": "t", "HCLOUD_ENDPOINT": "nowhere"}, "api_endpoint: 'nowhere'"),
    ],
)
def test_access_that_cannot_work(params, environment, field):
    with pytest.raises(FleetError, match=field):
        cloud_access(params, environment)


def test_options_win_over_the_environment():
    with ScriptedServer(Reply(200, {})) as server:
        environment = {"HCLOUD_TOKEN": "other", "HCLOUD_ENDPOINT": "https://other.example.com/v1"}
        Api(*cloud_access({"api_token": TOKEN, "api_endpoint": server.endpoint + "/"}, environment)).request(
            "GET", "/servers"
        )
    assert server.requests[0][1] == "/v1/servers"
    assert server.requests[0][2]["Authorization"] == f"Bearer {TOKEN}"
