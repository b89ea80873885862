# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client against a web server that plays a script: what is sent, what is sent again, and what is never."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    ApiError,
    Deadline,
    FleetError,
    LimitSpent,
    NoAnswer,
    Permanent,
    TimeLimit,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_client import (
    CONCURRENCY,
    RESET,
    Limits,
    Robot,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_servers import (
    FAILED,
    NOT_OFFERED,
    SENT,
    UNSURE,
    BootRoutes,
)
from tests.clock import Clock
from tests.unit.hetzner.scripted import Reply, ScriptedServer

SECRET = "geheim-ß"


def failure(status, code, **more):
    return Reply(status, {"error": {"status": status, "code": code, "message": "said the script", **more}})


OK = Reply(200, {"rescue": {"active": False}})
LIMIT = failure(403, "RATE_LIMIT_EXCEEDED", max_request=50, interval=3600)


class Scripted:
    """A client of a scripted server, with a clock of its own."""

    def __init__(self, *replies, patient=False, resets=50):
        self.server = ScriptedServer(*replies)
        self.time = Clock()
        self.patient = patient
        self.resets = resets

    def __enter__(self):
        self.server.__enter__()
        limits = Limits(self.time, resets=self.resets)
        self.api = Robot(
            "#ws+a", SECRET, self.server.endpoint, limits, self.patient, clock=self.time, sleep=self.time.sleep
        )
        return self

    def __exit__(self, *error):
        self.server.__exit__(*error)

    def deadline(self, seconds=360):
        return Deadline(seconds, "the answer", clock=self.time, sleep=self.time.sleep)

    @property
    def sent(self):
        return [" ".join(request[:2]) for request in self.server.requests]


def test_credentials_travel_in_the_header_and_nowhere_else():
    with Scripted(OK) as robot:
        robot.api.request(
            "POST", "/boot/1/rescue", robot.deadline(), data={"os": "linux", "authorized_key[]": ["a", "b"]}
        )
    ((method, path, headers, body),) = robot.server.requests
    assert (method, path) == ("POST", "/v1/boot/1/rescue")
    assert base64.b64decode(headers["Authorization"].split()[1]).decode() == "#ws+a:" + SECRET
    assert body == {"os": ["linux"], "authorized_key[]": ["a", "b"]}


def test_the_first_401_ends_everything_for_every_thread():
    with Scripted(failure(401, "UNAUTHORIZED")) as robot:
        errors = []

        def ask(number):
            try:
                robot.api.read(f"/boot/{number}/rescue", robot.deadline())
            except FleetError as error:
                errors.append(str(error))

        ask(0)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(1, 9)))
        assert len(robot.sent) == 1
    assert len(errors) == 9
    assert "HROBOT_API_PASSWORD" in errors[0]
    assert "10 minutes" in errors[0]
    assert SECRET not in errors[0]


def test_a_password_that_is_rotated_under_way_never_costs_the_three_logins_that_lock_us_out():
    with Scripted(failure(401, "UNAUTHORIZED")) as robot:
        barrier = threading.Barrier(20)

        def ask(number):
            barrier.wait(10)
            with pytest.raises(FleetError):
                robot.api.read(f"/boot/{number}/rescue", robot.deadline())

        with ThreadPoolExecutor(20) as pool:
            list(pool.map(ask, range(20)))
        assert len(robot.sent) <= CONCURRENCY < 3


def test_reads_are_repeated():
    with Scripted(Reply(503, text="maintenance"), Reply(drop=True), Reply(text="<html>"), OK) as robot:
        assert robot.api.read("/boot/1/rescue", robot.deadline()) == {"rescue": {"active": False}}
        assert len(robot.sent) == 4


def test_reads_end_at_the_deadline():
    with Scripted(Reply(503, text="maintenance")) as robot, pytest.raises(TimeLimit, match="http_503"):
        robot.api.read("/boot/1/rescue", robot.deadline(20))


def test_empty_lists_are_404_and_strange_ones_an_error():
    with Scripted(failure(404, "NOT_FOUND"), Reply(200, [{"key": {"name": "a"}}]), Reply(200, [{"x": 1}])) as robot:
        assert robot.api.read_list("/key", "key", robot.deadline()) == []
        assert robot.api.read_list("/key", "key", robot.deadline()) == [{"name": "a"}]
        with pytest.raises(FleetError, match="no list of 'key'"):
            robot.api.read_list("/key", "key", robot.deadline())


def test_redirects_are_not_followed():
    with Scripted(Reply(302, headers={"Location": "http://127.0.0.1:9/elsewhere"})) as robot:
        with pytest.raises(ApiError, match="http_302"):
            robot.api.request("GET", "/server", robot.deadline())


def test_a_limit_is_waited_for_in_steps_and_is_nobodys_failure():
    with Scripted(LIMIT, LIMIT, Reply(200, {"reset": {"type": "hw"}})) as robot:
        robot.api.reserve(RESET, robot.deadline())
        assert BootRoutes(robot.api, "n1", 1).reset("hw", robot.deadline(), lambda: None) == (SENT, None)
        assert 60 <= robot.time.now <= 120
        assert len(robot.sent) == 3


def test_a_held_route_holds_those_too_that_have_their_turn():
    with Scripted(LIMIT, Reply(200, {"reset": {"type": "hw"}})) as robot:
        for _number in range(2):
            robot.api.reserve(RESET, robot.deadline())
        with pytest.raises(ApiError, match="RATE_LIMIT_EXCEEDED"):
            robot.api.request("POST", "/reset/1", robot.deadline(), reserved=True)
        with pytest.raises(LimitSpent):
            robot.api.request("POST", "/reset/2", robot.deadline(20), reserved=True)
        assert len(robot.sent) == 1
        robot.api.request("POST", "/reset/2", robot.deadline(), reserved=True)
        assert robot.time.now >= 30


def test_a_limit_that_outlasts_the_step_says_what_it_is():
    with Scripted(LIMIT) as robot:
        robot.api.reserve(RESET, robot.deadline())
        with pytest.raises(
            LimitSpent, match=r"limit of 50 requests an hour for POST /reset/\{server\} is used up"
        ) as error:
            BootRoutes(robot.api, "n1", 1).reset("hw", robot.deadline(25), lambda: None)
        assert not error.value.permanent
        assert len(robot.sent) == 1


def test_patience_waits_for_the_hour_and_keeps_the_rescue_armed():
    kept = []
    with Scripted(Reply(200, {"reset": {"type": "hw"}}), patient=True, resets=1) as robot:
        boot = BootRoutes(robot.api, "n1", 1)
        for _number in range(3):
            boot.reserve(robot.deadline(10))
            boot.reset("hw", robot.deadline(10), lambda: kept.append(1))
        assert robot.time.now >= 7200
    with Scripted(LIMIT, Reply(200, {"reset": {"type": "hw"}}), patient=True) as robot:
        boot = BootRoutes(robot.api, "n1", 1)
        boot.reserve(robot.deadline(10))
        boot.reset("hw", robot.deadline(10), lambda: kept.append(2))
    assert kept == [2]


def test_other_routes_are_not_waited_for_longer_than_the_step():
    with Scripted(LIMIT, patient=True) as robot, pytest.raises(LimitSpent):
        robot.api.read("/server", robot.deadline(10))


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(drop=True), UNSURE),
        (Reply(502, text="bad gateway"), UNSURE),
        (failure(500, "RESET_FAILED"), FAILED),
        (failure(404, "RESET_NOT_AVAILABLE"), NOT_OFFERED),
        (failure(400, "INVALID_INPUT", invalid=["type"]), NOT_OFFERED),
        (Reply(200, {"reset": {"type": "hw", "operating_status": "shut off"}}), SENT),
    ],
)
def test_a_reset_is_sent_once_with_any_answer(reply, outcome):
    with Scripted(reply) as robot:
        robot.api.reserve(RESET, robot.deadline())
        found, status = BootRoutes(robot.api, "n1", 1).reset("hw", robot.deadline(), lambda: None)
        assert found == outcome
        assert status == ("shut off" if outcome == SENT else None)
        assert robot.sent == ["POST /v1/reset/1"]


def test_a_technician_under_way_is_a_permanent_error():
    with Scripted(failure(409, "RESET_MANUAL_ACTIVE")) as robot:
        robot.api.reserve(RESET, robot.deadline())
        with pytest.raises(Permanent, match="technician"):
            BootRoutes(robot.api, "n1", 1).reset("hw", robot.deadline(), lambda: None)


ARMED = Reply(200, {"rescue": {"active": True, "password": "x", "authorized_key": [{"key": {"fingerprint": "f"}}]}})


BLOCKED = Reply(
    200,
    {"boot": {"rescue": {"active": False}, "linux": {"active": True, "dist": "Debian 13"}, "vnc": None}},
)
VKVM = Reply(200, {"boot": {"rescue": {"active": True, "os": "vkvm"}, "linux": {"active": False, "dist": ["a", "b"]}}})
POST, LOOK = "POST /v1/boot/1/rescue", "GET /v1/boot/1/rescue"


@pytest.mark.parametrize(
    ("replies", "sent", "replaced"),
    [
        # it was carried out although its answer was lost, or it was not
        ([Reply(drop=True), ARMED], [POST, LOOK], []),
        ([Reply(drop=True), OK, ARMED], [POST, LOOK, POST], []),
        # all else that is armed is disarmed first
        (
            [failure(409, "BOOT_BLOCKED"), BLOCKED, Reply(200, {"linux": {"active": False}}), ARMED],
            [POST, "GET /v1/boot/1", "DELETE /v1/boot/1/linux", POST],
            ["linux (Debian 13)"],
        ),
        (
            [failure(409, "BOOT_ALREADY_ENABLED"), VKVM, OK, ARMED],
            [POST, "GET /v1/boot/1", "DELETE /v1/boot/1/rescue", POST],
            ["rescue (vkvm)"],
        ),
    ],
)
def test_arming_is_repeated_only_when_it_was_not_carried_out(replies, sent, replaced):
    with Scripted(*replies) as robot:
        assert BootRoutes(robot.api, "n1", 1).arm(["f"], robot.deadline()) == replaced
        assert robot.sent == sent


def test_a_server_without_a_rescue_is_a_permanent_error():
    with Scripted(failure(404, "BOOT_NOT_AVAILABLE")) as robot, pytest.raises(Permanent, match="offers no rescue"):
        BootRoutes(robot.api, "n1", 1).arm(["f"], robot.deadline())


def test_the_password_of_the_rescue_is_dropped():
    with Scripted(ARMED) as robot:
        assert "password" not in BootRoutes(robot.api, "n1", 1).rescue(robot.deadline())


def test_requests_are_counted_for_the_fleet_and_for_each_machine():
    with Scripted(OK) as robot:
        for machine in (None, "n1", "n1", "n2"):
            robot.api.read("/boot/1/rescue", robot.deadline(), machine=machine)
        assert (robot.api.calls, robot.api.calls_of["n1"], robot.api.calls_of["n2"]) == (4, 2, 1)


def test_a_refused_connection_is_no_sent_request():
    with Scripted(OK) as robot:
        pass
    with pytest.raises(NoAnswer) as error:
        robot.api.request("GET", "/server", robot.deadline())
    assert not error.value.sent


def test_a_robot_that_never_answered_is_not_waited_for():
    with Scripted(OK) as robot:
        pass
    with pytest.raises(FleetError, match=r"^endpoint: http://127.*cannot be reached, .*\[Errno 111\]") as error:
        robot.api.read("/server", robot.deadline())
    assert 20 <= robot.time.now <= 22
    assert "Nothing was changed" in str(error.value)
    assert SECRET not in str(error.value)
