# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every request: tokens, envelope, headers, pages, rate limit."""

import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace

import pytest
import requests

from lab.api.cloud_project import Settings
from tests.clock import Clock
from tests.lab.api.conftest import Api


@pytest.fixture
def clock(monkeypatch):
    """The clock of the buckets of labs that are made later in the test."""
    clock = Clock(1_000_000.0)
    monkeypatch.setattr("lab.lab.time", SimpleNamespace(time=clock))
    return clock


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic abc", "Bearer ü".encode()])
def test_unauthorized(lab_dry, header):
    headers = {} if header is None else {"Authorization": header}
    answer = requests.get(f"{lab_dry.endpoint}/servers", headers=headers, timeout=600)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")


def test_read_only_token(lab_dry):
    reader = Api(lab_dry, lab_dry.read_only_token)
    assert reader.good("GET", "/servers")["servers"] == []
    for method, path in (("POST", "/servers"), ("PUT", "/servers/1"), ("DELETE", "/servers/1")):
        assert reader.refused(method, path, {}) == (401, "token_readonly")


def test_the_labs_own_routes_need_the_token(lab_dry):
    url = lab_dry.endpoint.replace("/v1", "/_lab/status")
    assert requests.get(url, timeout=600).status_code == 401
    reader = {"Authorization": f"Bearer {lab_dry.read_only_token}"}
    assert requests.get(url, headers=reader, timeout=600).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nothing", None, 404, "not_found"),
        ("GET", "/servers/1", None, 404, "not_found"),
        ("GET", "/servers/x", None, 404, "not_found"),
        ("GET", "/images/1", None, 404, "not_found"),
        ("GET", "/ssh_keys/1", None, 404, "not_found"),
        ("GET", "/actions/1", None, 404, "not_found"),
        ("GET", "/servers/1/actions", None, 404, "not_found"),
        ("GET", "/locations/99", None, 404, "not_found"),
        ("GET", "/isos/1", None, 404, "not_found"),
        ("POST", "/servers/1/actions/poweron", None, 404, "not_found"),
        ("DELETE", "/servers", None, 405, "method_not_allowed"),
        ("POST", "/locations", {}, 405, "method_not_allowed"),
        ("GET", "/servers/1/actions/poweron", None, 405, "method_not_allowed"),
        ("GET", "/actions", None, 422, "invalid_input"),
        ("GET", "/actions?id=x", None, 422, "invalid_input"),
        ("GET", "/servers?page=0", None, 422, "invalid_input"),
        ("GET", "/servers?sort=size", None, 422, "invalid_input"),
        ("GET", "/servers?status=asleep", None, 422, "invalid_input"),
        ("GET", "/servers?label_selector=a+b", None, 422, "invalid_input"),
        ("GET", "/images?type=iso", None, 422, "invalid_input"),
        ("GET", "/images?architecture=mips", None, 422, "invalid_input"),
        ("GET", "/datacenters", None, 410, "deprecated_api_endpoint"),
        ("POST", "/servers", [1], 400, "json_error"),
        ("POST", "/servers", {"color": "red"}, 422, "invalid_input"),
        ("POST", "/volumes", {}, 422, "unsupported_error"),
    ],
)
def test_refusals(api, method, path, body, status, code):
    assert api.refused(method, path, body) == (status, code)


def test_broken_json(api):
    answer = api("POST", "/servers", data=b'{"name": ')
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "json_error")


def test_headers_of_every_answer(clock, api):
    seen = set()
    for path in ("/servers", "/nothing", "/servers?page=0"):
        answer = api("GET", path)
        assert answer.headers["RateLimit-Limit"] == "3600"
        assert int(answer.headers["RateLimit-Remaining"]) < 3600
        assert clock.now < int(answer.headers["RateLimit-Reset"]) < clock.now + 60
        seen.add(answer.headers["X-Correlation-Id"])
    assert len(seen) == 3


def test_link_header_leads_through_all_pages(api):
    for number in range(7):
        api.key(f"key{number}")
    path, names = "/ssh_keys?per_page=3&sort=name:desc", []
    while path:
        answer = api("GET", path)
        names += [key["name"] for key in answer.json()["ssh_keys"]]
        following = answer.links.get("next", {}).get("url")
        path = following and following.removeprefix(api.lab.endpoint)
    assert names == [f"key{number}" for number in reversed(range(7))]


def test_rate_limit(lab):
    api = Api(lab(settings=Settings(limit=3, refill_per_second=0)))
    assert [api("GET", "/servers").status_code for dummy in range(5)] == [200, 200, 200, 429, 429]
    error = api("GET", "/servers").json()["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert error["message"] == "limit of 3 requests per hour reached"


def test_rate_limit_comes_back(clock, lab):
    api = Api(lab(settings=Settings(limit=100, refill_per_second=20)))
    api.lab.control("POST", "/bucket", {"remaining": 0})
    assert api("GET", "/servers").status_code == 429
    clock.now += 0.1
    assert api("GET", "/servers").status_code == 200


def test_unknown_clients_do_not_spend_the_projects_requests(lab):
    api = Api(lab(settings=Settings(limit=2, refill_per_second=0)))
    stranger = Api(api.lab, "wrong")
    assert [stranger("GET", "/servers").status_code for dummy in range(3)] == [401, 401, 429]
    assert api("GET", "/servers").status_code == 200


def test_requests_are_counted(api):
    api.lab.control("DELETE", "/requests")
    api("GET", "/servers?name=x")
    api("POST", "/ssh_keys", {})
    seen = api.lab.control("GET", "/requests")["requests"]
    assert [(entry["method"], entry["path"], entry["status"]) for entry in seen] == [
        ("GET", "/servers", 200),
        ("POST", "/ssh_keys", 422),
    ]
    assert seen[0]["query"] == "name=x"


def test_status(api):
    status = api.lab.control("GET", "/status")
    assert status["kind"] == "dry"
    assert status["endpoint"] == api.lab.endpoint


def test_data_centers_of_old(lab):
    api = Api(lab(settings=Settings(datacenters=True)))
    assert api.good("GET", "/datacenters?name=fsn1-dc14")["datacenters"][0]["location"]["name"] == "fsn1"
    server = api.server(api.create(datacenter="nbg1-dc3"))
    assert server["datacenter"]["name"] == "nbg1-dc3"
    assert api.good("GET", f"/datacenters/{server['datacenter']['id']}")["datacenter"] == server["datacenter"]


def test_no_data_centers_today(api):
    assert "datacenter" not in api.server(api.create())
    body = {"name": "n2", "server_type": "cx23", "image": "debian-12", "datacenter": "fsn1-dc14"}
    assert api.refused("POST", "/servers", body) == (422, "invalid_input")


CREATE = {"name": "n1", "server_type": "cx23", "image": "debian-12", "start_after_create": False}


def fault(api, **fields):
    api.lab.control("POST", "/faults", fields)


def test_garbage_comes_with_the_real_status_and_happens(api):
    fault(api, point="request", method="POST", path="/servers", garble="garbage")
    answer = api("POST", "/servers", CREATE)
    assert answer.status_code == 201
    assert answer.headers["Content-Type"].startswith("application/json")
    assert "RateLimit-Remaining" in answer.headers
    with pytest.raises(ValueError):
        answer.json()
    assert [server["name"] for server in api.good("GET", "/servers")["servers"]] == ["n1"]


def test_half_an_answer_ends_with_the_connection_and_happens(api):
    fault(api, point="request", method="POST", path="/servers", garble="half")
    with pytest.raises(requests.exceptions.RequestException):
        api("POST", "/servers", CREATE)
    assert [server["name"] for server in api.good("GET", "/servers")["servers"]] == ["n1"]


@pytest.mark.parametrize("ahead", [7200, -7200])
def test_the_clock_of_the_api_may_be_wrong(api, ahead):
    fault(api, point="clock", ahead=ahead)
    server = api.create()
    answer = api("GET", f"/servers/{server}/actions")
    reported = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    assert abs(reported - time.time() - ahead) < 600
    started = datetime.fromisoformat(answer.json()["actions"][0]["started"])
    assert abs(started.timestamp() - time.time() - ahead) < 600
    api.lab.control("DELETE", "/faults")
    reported = parsedate_to_datetime(api("GET", "/servers").headers["Date"]).timestamp()
    assert abs(reported - time.time()) < 600
