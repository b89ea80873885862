# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers that are carried out and cannot be read, and a clock that is wrong."""

from __future__ import annotations

import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import pytest
import requests

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
