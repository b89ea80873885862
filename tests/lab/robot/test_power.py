# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Buttons, boots and the life of an armed rescue; the end state of the machine counts."""

import pytest

from lab.power_control import DedicatedPower


@pytest.mark.parametrize(
    ("kind", "powered", "boots", "status"),
    [
        ("sw", True, ["disk", "disk"], "running"),
        ("sw", False, [], "shut off"),
        ("hw", True, ["disk", "disk"], "running"),
        ("hw", False, [], "shut off"),
        ("power", True, ["disk"], "shut off"),
        ("power", False, ["disk"], "running"),
        ("power_long", True, ["disk"], "shut off"),
        ("power_long", False, [], "shut off"),
        ("man", True, ["disk"], "running"),
    ],
)
def test_every_button_in_both_states(robot, kind, powered, boots, status):
    robot.lab.dedicated(number=1, powered=powered)
    robot.reset(1, kind)
    assert (robot.boots(1), robot.status(1)) == (boots, status)
    assert [reset["type"] for reset in robot.machine(1)["resets"]] == [kind]


class TestFirmwareTakesItsTimeAtEveryBoot:
    @pytest.fixture
    def seconds(self, monkeypatch):
        """How long each boot waits, by what it would boot; the test sets it."""
        seconds = {"rescue": 0, "disk": 0}

        def firmware_seconds(_power_control, *, rescue):
            return seconds["rescue" if rescue else "disk"]

        monkeypatch.setattr(DedicatedPower, "firmware_seconds", firmware_seconds)
        return seconds

    @pytest.mark.parametrize(("kind", "cause"), [("sw", "firmware"), ("hw", "firmware"), ("hw", "fault")])
    def test_nothing_runs_meanwhile(self, robot, server, seconds, kind, cause):
        if cause == "fault":
            robot.fault(point="boot", machine=str(server), effect="slow", delay=3600)
        else:
            seconds["rescue"] = 3600
        robot.arm(server)
        robot.reset(server, kind)
        machine = robot.machine(server)
        assert (machine["powered"], machine["running"], robot.boots(server)) == (True, False, ["disk"])
        assert robot.rescue(server)["active"], "no firmware has asked for it yet"
        robot.reset(server, "sw")
        robot.reset(server, "power")
        assert robot.boots(server) == ["disk"], "a firmware that counts down ignores the keyboard"
        seconds["rescue"] = 0
        robot.reset(server, "hw")
        assert robot.boots(server) == ["disk", "rescue"]

    def test_a_reboot_from_inside(self, robot, server, seconds):
        seconds["rescue"] = 0.1
        robot.arm(server)
        robot.reset(server, "sw")
        robot.until(lambda: robot.boots(server) == ["disk", "rescue"], "the rescue")
        seconds["disk"] = 3600
        robot.reset(server, "sw")
        assert not robot.machine(server)["running"]
        robot.reset(server, "power_long")
        assert (robot.status(server), robot.boots(server)) == ("shut off", ["disk", "rescue"])
        seconds["disk"] = 0
        robot.reset(server, "power")
        assert robot.boots(server) == ["disk", "rescue", "disk"]


def test_wake_on_lan(robot):
    robot.lab.dedicated(number=1, powered=False)
    robot.good("POST", "/wol/1")
    robot.good("POST", "/wol/1")
    assert (robot.boots(1), robot.status(1)) == (["disk"], "running")


def test_a_technician_blocks_further_resets(robot, server):
    robot.reset(server, "man")
    assert robot.refused("POST", f"/reset/{server}", {"type": "hw"}) == (409, "RESET_MANUAL_ACTIVE")
    assert robot.boots(server) == ["disk"]


def test_rescue_is_for_one_boot(robot, server):
    fingerprint = robot.key()
    robot.arm(server, fingerprint)
    robot.reset(server, "hw")
    assert not robot.rescue(server)["active"]
    robot.reset(server, "hw")
    assert robot.boots(server) == ["disk", "rescue", "disk"]
    (key,) = robot.machine(server)["boots"][1]["authorized_keys"]
    assert key == robot.good("GET", f"/key/{fingerprint}")["key"]["data"]


def test_last_returns_the_host_keys_once_it_booted(robot, server):
    armed = robot.arm(server)
    assert robot.last(server) == armed
    robot.clock.sleep(80)
    robot.reset(server, "sw")
    last = robot.last(server)
    assert last["boot_time"] == "2026-09-21 16:14:40"
    assert last | {"host_key": [], "boot_time": None, "active": True} == armed
    keys = [entry["key"] for entry in last["host_key"]]
    assert [(key["type"], key["size"]) for key in keys] == [("ECDSA", 256), ("ED25519", 256), ("RSA", 3072)]
    assert all(len(key["fingerprint"]) == 43 and ":" not in key["fingerprint"] for key in keys)
    robot.arm(server)
    robot.reset(server, "hw")
    assert robot.last(server)["host_key"] != last["host_key"], "every boot has host keys of its own"
    assert robot.rescue(server)["host_key"] == []


def test_summer_and_winter(robot, server):
    robot.clock.now = 1_799_000_000.0  # 2027-01-03 18:13:20 UTC
    robot.arm(server)
    robot.reset(server, "hw")
    assert robot.last(server)["boot_time"] == "2027-01-03 19:13:20"


def test_rescue_lapses_after_an_hour(robot, server):
    robot.arm(server)
    robot.clock.sleep(3599)
    assert robot.rescue(server)["active"]
    robot.clock.sleep(1)
    assert not robot.rescue(server)["active"]
    assert not robot.last(server)["active"]
    robot.reset(server, "hw")
    assert robot.boots(server) == ["disk", "disk"]
    assert robot.arm(server)["active"], "a lapsed activation blocks no new one"


def test_a_withdrawn_rescue_does_not_boot(robot, server):
    robot.arm(server)
    robot.good("DELETE", f"/boot/{server}/rescue")
    robot.good("DELETE", f"/boot/{server}/rescue")
    robot.reset(server, "hw")
    assert robot.boots(server) == ["disk", "disk"]


def test_installations_are_used_up_and_boot_the_disk(robot, server):
    robot.good("POST", f"/boot/{server}/linux", {"dist": "Debian 12 base", "lang": "en"})
    robot.reset(server, "hw")
    robot.reset(server, "hw")
    assert robot.boots(server) == ["disk", "linux", "disk"]


def test_a_deleted_key_stays_in_an_armed_rescue(robot, server):
    fingerprint = robot.key()
    robot.arm(server, fingerprint)
    robot.good("DELETE", f"/key/{fingerprint}")
    robot.reset(server, "hw")
    assert len(robot.machine(server)["boots"][-1]["authorized_keys"]) == 1


class TestFaults:
    def test_ignored_rescue_stays_armed(self, robot, server):
        robot.arm(server)
        robot.fault(point="boot", machine=str(server), effect="ignore_rescue")
        robot.reset(server, "hw")
        assert robot.rescue(server)["active"]
        robot.reset(server, "hw")
        assert robot.boots(server) == ["disk", "disk", "rescue"]

    def test_dead(self, robot, server):
        robot.arm(server)
        robot.fault(point="boot", machine=str(server), effect="dead")
        robot.reset(server, "hw")
        machine = robot.machine(server)
        assert (machine["powered"], machine["running"]) == (True, False)
        assert robot.rescue(server)["active"], "nothing booted, so nothing was consumed"

    def test_a_little_slow(self, robot, server):
        robot.arm(server)
        robot.fault(point="boot", machine=str(server), effect="slow", delay=0.1)
        robot.reset(server, "hw")
        robot.until(lambda: robot.last(server)["host_key"], "host keys")
        assert robot.boots(server) == ["disk", "rescue"]

    def test_a_deaf_system_only_obeys_the_reset_button(self, robot, server):
        robot.lab.dedicated(number=1)
        robot.fault(point="boot", machine=str(server), effect="deaf")
        assert (robot.machine(server)["running"], robot.machine(1)["running"]) == (False, True)
        robot.arm(server)
        for kind in ("sw", "power"):
            robot.reset(server, kind)
            assert robot.rescue(server)["active"]
        assert robot.status(server) == "running"
        robot.reset(server, "hw")
        assert robot.boots(server) == ["disk", "rescue"]
        robot.reset(server, "hw")
        assert robot.machine(server)["running"], "it struck once"

    def test_deaf_from_its_first_boot(self, robot):
        robot.fault(point="boot", machine="7", effect="deaf")
        (machine,) = robot.lab.dedicated(number=7)
        assert (machine["powered"], machine["running"]) == (True, False)
        robot.arm(7)
        robot.reset(7, "sw")
        robot.reset(7, "hw")
        assert robot.boots(7) == ["disk", "rescue"]

    def test_deaf_after_the_next_boot(self, robot, server):
        robot.fault(point="boot", machine=str(server), effect="deaf", skip=1)
        robot.reset(server, "sw")
        robot.until(lambda: not robot.machine(server)["running"], "a deaf system")
        assert robot.boots(server) == ["disk", "disk"]

    def test_reset_failed(self, robot, server):
        robot.fault(point="boot", machine=str(server), effect="reset_failed")
        assert robot.refused("POST", f"/reset/{server}", {"type": "hw"}) == (500, "RESET_FAILED")
        assert robot.machine(server)["resets"] == []
        robot.reset(server, "hw")
        assert robot.boots(server) == ["disk", "disk"]

    def test_missing_and_other_host_keys(self, robot, server):
        robot.fault(point="boot", machine="n1", effect="host_keys_missing")
        robot.arm(server)
        robot.reset(server, "hw")
        last = robot.last(server)
        assert (last["host_key"], last["active"]) == ([], False)
        assert last["boot_time"]
        robot.fault(point="boot", machine=str(server), effect="other_host_keys")
        robot.arm(server)
        robot.reset(server, "hw")
        shown = {entry["key"]["fingerprint"] for entry in robot.last(server)["host_key"]}
        real = {key.fingerprint for key in robot.lab.lab.account.servers[server].last["rescue"].host_keys}
        assert len(shown) == len(real) == 3
        assert not shown & real
