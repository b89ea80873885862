# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delays: measured bounds, the right mean, the same again for the same seed."""

import asyncio
import random
import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import power_control
from lab.api import actions as lab_actions
from lab.delays import GUEST_SECONDS, HETZNER, INSTANT, PROFILES, Delays, Span
from tests.lab.api.conftest import Api
from tests.waiting import until

SPANS = [*HETZNER.actions.values(), HETZNER.other_action, HETZNER.rescue_ssh, HETZNER.disk_boot, HETZNER.soft_off]


@pytest.mark.parametrize("span", SPANS)
def test_bounds_and_mean(span):
    source = random.Random(1)
    drawn = [span.draw(source) for _dummy in range(5000)]
    assert span.low <= min(drawn)
    assert max(drawn) <= span.high
    assert statistics.mean(drawn) == pytest.approx(span.typical, rel=0.02)


@given(st.integers(0, 1000), st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=12))
def test_order_of_machines_changes_nothing(seed, order):
    mixed, alone = Delays(HETZNER, "dry", seed), Delays(HETZNER, "dry", seed)
    seen = {}
    for name in order:
        seen.setdefault(name, []).append(mixed.action(name, "create_server"))
    for name in sorted(seen):
        assert seen[name] == [alone.action(name, "create_server") for _dummy in seen[name]]


def test_seeds_differ():
    assert Delays(HETZNER, "dry", 1).action("n1", "create_server") != Delays(HETZNER, "dry", 2).action(
        "n1", "create_server"
    )


@pytest.mark.parametrize("kind", GUEST_SECONDS)
def test_firmware_is_the_measured_time_less_what_the_guest_needs(kind):
    seconds = Delays(HETZNER, kind).firmware("n1", rescue=True)
    assert HETZNER.rescue_ssh.low <= seconds + GUEST_SECONDS[kind] <= HETZNER.rescue_ssh.high


def test_instant_is_instant():
    delays = Delays(INSTANT, "nspawn")
    assert delays.action("n1", "create_server") == 0
    assert delays.firmware("n1", rescue=True) == 0


def test_report_adds_up_without_what_overlaps():
    delays = Delays(HETZNER, "dry")
    create, rescue = delays.action("n1", "create_server"), delays.action("n1", "enable_rescue")
    delays.action("n1", "start_server")
    firmware = delays.firmware("n1", rescue=True)
    report = delays.report()
    assert report["machines"]["n1"]["total"] == pytest.approx(create + rescue + firmware, abs=0.01)
    assert [entry["what"] for entry in report["machines"]["n1"]["delays"]] == [
        "create_server",
        "enable_rescue",
        "start_server",
        "firmware_rescue",
    ]


def test_profiles_have_names():
    assert set(PROFILES) == {"instant", "hetzner"}
    assert Span(1, 1, 1).draw(random.Random(0)) == 1


def test_actions_and_boots_take_the_time_that_was_drawn(lab, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    for module in (lab_actions, power_control):
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    api = Api(lab(profile="hetzner", seed=7))
    created = api.good("POST", "/servers", {"name": "n1", "server_type": "cx23", "image": "debian-12"})
    for action in (created["action"], *created["next_actions"]):
        assert api.wait(action)["status"] == "success"
    until(lambda: api.boots() == ["disk"], "the boot")
    alone = Delays(HETZNER, "dry", 7)
    wanted = {
        "create_server": alone.action("n1", "create_server"),
        "start_server": alone.action("n1", "start_server"),
        "firmware_disk": alone.firmware("n1", rescue=False),
    }
    drawn = api.lab.control("GET", "/delays")["machines"]["n1"]["delays"]
    assert {entry["what"]: entry["seconds"] for entry in drawn} == pytest.approx(wanted, abs=0.01)
    assert sorted(slept) == sorted(wanted.values())
