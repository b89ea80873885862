# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials, lock-out, limits and request faults, over HTTP."""

import pytest
import requests

WRONG = ("#ws+lab", "wrong")


def test_credentials(robot, server):
    answer = robot("GET", "/server", auth=WRONG)
    assert answer.status_code == 401
    assert answer.json() == {"error": {"status": 401, "code": "UNAUTHORIZED", "message": "Unauthorized"}}
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert robot.refused("GET", "/server", auth=("root", robot.credentials[1])) == (401, "UNAUTHORIZED")
    assert robot.good("GET", "/server")


def test_three_failures_shut_the_address_out_for_ten_minutes(robot, server):
    for _dummy in range(3):
        robot.refused("GET", "/server", auth=WRONG)
    robot.clock.sleep(599)
    assert robot.refused("GET", "/server") == (401, "UNAUTHORIZED"), "even with the right password"
    robot.clock.sleep(1)
    assert robot.good("GET", "/server")


def test_a_good_login_resets_the_count(robot, server):
    for _dummy in range(3):
        robot.refused("GET", "/server", auth=WRONG)
        robot.refused("GET", "/server", auth=WRONG)
        assert robot.good("GET", "/server")


@pytest.mark.parametrize("header", [None, "Bearer x", "Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Basic é".encode()])
def test_no_credentials_are_no_failed_login(robot, server, header):
    headers = {"Authorization": header} if header else {}
    for _dummy in range(4):
        answer = requests.get(robot.lab.robot_endpoint + "/server", headers=headers, timeout=600)
        assert answer.status_code == 401
    assert robot.good("GET", "/server")


def test_lock_out_and_limits_can_be_lifted(robot, server):
    for _dummy in range(3):
        robot.refused("GET", "/server", auth=WRONG)
    robot.lab.control("DELETE", "/robot/limits")
    assert robot.good("GET", "/server")


def test_fifty_resets_an_hour(robot, server):
    robot.lab.dedicated(number=1)
    for _dummy in range(25):
        robot.reset(server, "hw")
        robot.clock.sleep(10)
        robot.reset(1, "hw")
    answer = robot("POST", "/reset/1", {"type": "hw"})
    assert answer.status_code == 403
    assert answer.json()["error"] == {
        "status": 403,
        "code": "RATE_LIMIT_EXCEEDED",
        "message": "rate limit exceeded",
        "max_request": 50,
        "max_requests": 50,
        "interval": 3600,
    }
    assert len(robot.machine(1)["resets"]) == 25
    assert robot.status(1), "reading has a limit of its own"
    robot.clock.sleep(3600 - 250)  # the very first one is an hour ago
    robot.reset(1, "hw")
    robot.refused("POST", "/reset/1", {"type": "hw"})


def test_remaining_requests_can_be_set(robot, server):
    route = "POST /reset/{server}"
    left = robot.lab.control("POST", "/robot/limits", {"route": route, "remaining": 1})
    assert left == {"route": route, "limit": 50, "remaining": 1}
    robot.reset(server, "hw")
    assert robot.refused("POST", f"/reset/{server}", {"type": "hw"}) == (403, "RATE_LIMIT_EXCEEDED")
    robot.lab.control("POST", "/robot/limits", {"route": route, "remaining": 0, "interval": 20})
    assert robot("POST", f"/reset/{server}", {"type": "hw"}).json()["error"]["interval"] == 20
    robot.clock.sleep(20)
    robot.reset(server, "hw")


@pytest.mark.parametrize(
    "body", [{"route": "POST /reset", "remaining": 1}, {"route": "GET /key", "remaining": -1}, {"remaining": 1}]
)
def test_bad_limits(robot, body):
    with pytest.raises(Exception, match=r"HTTP 422.*invalid_input"):
        robot.lab.control("POST", "/robot/limits", body)


def test_rotated_password(robot, server):
    robot.fault(point="boot", effect="password_rotated", skip=1)
    assert robot.good("GET", "/server")
    for _dummy in range(4):
        assert robot.refused("GET", "/server") == (401, "UNAUTHORIZED")
    robot.lab.control("DELETE", "/faults")
    robot.lab.control("DELETE", "/robot/limits")
    assert robot.good("GET", "/server")


def test_request_faults_are_for_their_api(robot, server):
    robot.fault(point="request", path="/server.*")
    robot.fault(point="request", api="robot", method="get", path="/server/4711", code="INTERNAL_ERROR", status=500)
    robot.fault(point="request", api="robot", path="/reset/4711", status=503)
    assert robot.good("GET", "/server")
    assert robot.refused("GET", "/server/4711") == (500, "INTERNAL_ERROR")
    assert robot.good("GET", "/server/4711")
    proxy = robot("POST", "/reset/4711", {"type": "hw"})
    assert (proxy.status_code, proxy.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
    assert robot.boots(server) == ["disk"]


def test_lost_answers(robot, server):
    robot.fault(point="request", api="robot", method="POST", after_effect=True, drop=True)
    with pytest.raises(requests.ConnectionError):
        robot("POST", f"/reset/{server}", {"type": "hw"})
    assert robot.boots(server) == ["disk", "disk"]
    robot.fault(point="request", api="robot", method="POST", drop=True)
    with pytest.raises(requests.ConnectionError):
        robot("POST", f"/reset/{server}", {"type": "hw"})
    assert robot.boots(server) == ["disk", "disk"]


def test_rate_limit_as_a_fault_has_its_fields(robot, server):
    robot.fault(point="request", api="robot", path="/reset/.*", status=403, code="RATE_LIMIT_EXCEEDED")
    error = robot("POST", f"/reset/{server}", {"type": "hw"}).json()["error"]
    assert (error["max_request"], error["interval"]) == (50, 3600)


def test_requests_of_both_apis_are_logged(robot, server):
    robot.lab.control("DELETE", "/requests")
    robot.good("GET", f"/boot/{server}")
    robot.refused("GET", "/nothing", auth=WRONG)
    requests.get(robot.lab.endpoint + "/servers", timeout=600)
    seen = robot.lab.control("GET", "/requests")["requests"]
    assert [(entry["api"], entry["method"], entry["path"], entry["status"]) for entry in seen] == [
        ("robot", "GET", f"/boot/{server}", 200),
        ("robot", "GET", "/nothing", 401),
        ("cloud", "GET", "/servers", 401),
    ]
