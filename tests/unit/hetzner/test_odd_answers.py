# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers, times and addresses of both APIs, of users and of machines that are none."""

from __future__ import annotations

import datetime
import re
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import from_rfc3339
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import (
    catalog,
    cloud_client,
    robot_client,
    robot_servers,
    ssh,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_client as robot
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    ApiError,
    Deadline,
    FleetError,
    NoAnswer,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Api
from tests.unit.common import answers, odd
from tests.unit.hetzner.scripted import Reply, ScriptedServer

ENDPOINTS = ("http://[", "https://[::1/v1", "https://h:99999/v1", "https://h:²/v1", "https://h:0/v1", "https://h:1_0/")
DATES = ("Mon, 01 Jan 2020 00:00:00 +99999999999999999", "Mon, 01 Jan 99999999999999999999999 00:00:00 GMT",
         "Mon, 01 Jan 0001 00:00:00 -0000", "²", "", "9" * 5000)  # fmt: skip


# --- the Cloud


@odd.examples()
@given(odd.texts)
def test_a_limit_is_a_number_or_unknown(text):
    followed = cloud_client.Budget(lambda: 0.0)
    followed.answered({"RateLimit-Limit": text, "RateLimit-Remaining": "5"}, followed.sent())
    assert followed.known is bool(re.fullmatch("[0-9]{1,19}", text.strip()) and 0 < int(text.strip()) < 1 << 63)
    assert followed.delay() >= 0


@pytest.mark.parametrize("date", DATES)
def test_an_invalid_date_gives_no_time(date):
    api = Api.__new__(Api)
    api._server_clock, api._clock = None, time.monotonic
    api._read_clock(date)
    assert api._server_clock is None or date.endswith("-0000")


@pytest.mark.parametrize("body", [odd.DEEP, '{"error": ' + odd.DEEP])
def test_an_answer_may_be_any_json(body):
    with ScriptedServer(Reply(200, text=body)) as server, pytest.raises(NoAnswer):
        Api("token", server.endpoint).request("GET", "/servers")
    with ScriptedServer(Reply(422, text=body)) as server, pytest.raises(ApiError) as caught:
        Api("token", server.endpoint).request("GET", "/servers")
    assert caught.value.code == "http_422"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_endpoint_is_a_url(endpoint):
    with pytest.raises(FleetError, match="is no address of an API"):
        cloud_client.cloud_access({"api_token": "x", "api_endpoint": endpoint}, {})
    with pytest.raises(FleetError, match="not the address of a webservice"):
        robot_client.robot_access({"robot_user": "u", "robot_password": "p", "endpoint": endpoint}, {})


@odd.examples("2026-01-01T00:00:00", "2020-01-01", "0000-01-01T00:00:00Z", "²")
@given(st.text(max_size=30))
def test_the_end_of_a_server_type_that_cannot_be_read_is_none(text):
    kind = {"id": 3, "name": "cx11", "deprecation": {"unavailable_after": text}}
    now = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
    assert catalog.pick_server_type("cx11", [kind], now) is kind


@pytest.mark.parametrize("wanted", ["²", "٣", "1_0"])
def test_only_digits_are_asked_for_as_an_id(wanted, monkeypatch):
    lists = catalog.Catalog.__new__(catalog.Catalog)
    monkeypatch.setattr(lists, "_all", lambda *_arguments: [], raising=False)
    monkeypatch.setattr(lists, "_api", types.SimpleNamespace(read=pytest.fail), raising=False)
    monkeypatch.setattr(lists, "_deadline", None, raising=False)
    assert lists._read_images(wanted, labelled=True) == []


def test_an_installed_record_may_be_any_json():
    assert ssh.parse_probe(answers.of_probe(record=odd.DEEP)).installed is None


# --- times


@odd.examples(
    "2026-W01-1T00:00:00Z", "20260101T000000Z", "2026-01-01T00:00Z", "2026-01-01T٠0:00:00Z", "2026-01-01T00:00:00Z\n",
    "2026-01-01T00:00:00+25:00", "0000-01-01T00:00:00Z", "2026-01-01T23:59:60Z", "9" * 5000,
)  # fmt: skip
@given(st.text(max_size=40) | st.text(alphabet="0123456789-:.TZ+", max_size=30))
def test_a_time_is_of_rfc_3339_or_refused(text):
    try:
        from_rfc3339(text)
    except ValueError:
        return
    assert re.fullmatch(r"[0-9-]{10}[Tt ][0-9:]{8}(\.[0-9]+)?([Zz]|[+-][0-9:]{5})", text)


@pytest.mark.parametrize("value", [None, 5, True, 1.5, [], {}])
def test_what_is_no_text_is_no_time(value):
    with pytest.raises(ValueError, match="no time"):
        from_rfc3339(value)


@pytest.mark.parametrize("fraction", ["", ".5", ".500", ".500000", ".500000000"])
def test_every_python_reads_every_fraction(fraction):
    assert from_rfc3339(f"1970-01-01T00:00:01{fraction}Z") == (1.5 if fraction else 1.0)


# --- Robot


@odd.examples(float("inf"), float("nan"), 10**400, True, 0, -5, "3600", None, 10**6)
@given(st.none() | st.booleans() | st.integers() | st.floats() | odd.texts)
def test_the_window_that_a_403_names_is_a_day_at_most(interval):
    found = robot._interval_of({"error": {"interval": interval}})
    good = isinstance(interval, int) and not isinstance(interval, bool) and 1 <= interval <= 24 * 3600
    assert found == (interval if good else robot.WINDOW)


def test_an_answer_of_robot_may_be_any_json():
    with ScriptedServer(Reply(200, text=odd.DEEP)) as server:
        api = robot.Robot("u", "p", server.endpoint, robot.Limits(time.monotonic), sleep=lambda seconds: None)
        with pytest.raises((ApiError, NoAnswer)):
            api.request("POST", "/boot/321/rescue", Deadline(5, "the answer"))


@odd.examples()
@given(odd.texts)
def test_a_server_number_is_one_or_none(text):
    number = robot_servers.number_of({"server_number": text})
    assert number is None or number == int(re.fullmatch("[0-9]{1,19}", text)[0])
    assert bool(robot_servers.input_findings([{"name": "a", "server_number": text}])) is (number is None)


def test_the_last_network_of_all_has_no_address():
    assert robot_servers.rescue_address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff") is None
    assert robot_servers.rescue_address("2001:db8::") == "2001:db8::2"
