# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any order of requests and any passing of time: a dedicated server behaves as a small model says."""

import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

LINUX = {"dist": "Debian 12 base", "lang": "en"}
BODIES = {"rescue": {"os": "linux"}, "linux": LINUX}
LIFETIME = 3600


class ServerInAnyOrder(RuleBasedStateMachine):
    """Random requests about one server; the model is its power, its boots and the one active configuration."""

    robot = None
    numbers = itertools.count(1)

    @initialize(powered=st.booleans())
    def open(self, powered):
        self.number = next(self.numbers)
        disks = [{"size": "1M", "kind": "sata"}]
        self.robot.lab.dedicated(number=self.number, powered=powered, disks=disks)
        self.on, self.boots = powered, ["disk"] if powered else []
        self.active, self.expires = None, 0.0

    def teardown(self):
        if hasattr(self, "number"):
            self.robot.lab.control("DELETE", f"/dedicated/{self.number}")

    def armed(self):
        return self.active if self.robot.clock.now < self.expires else None

    def boot(self):
        self.boots.append(self.armed() or "disk")
        self.on, self.active = True, None

    @rule(kind=st.sampled_from(["rescue", "linux"]))
    def activate(self, kind):
        path = f"/boot/{self.number}/{kind}"
        if self.armed():
            code = "BOOT_ALREADY_ENABLED" if self.armed() == kind else "BOOT_BLOCKED"
            assert self.robot.refused("POST", path, BODIES[kind]) == (409, code)
            return
        assert self.robot.good("POST", path, BODIES[kind])[kind]["active"]
        self.active, self.expires = kind, self.robot.clock.now + LIFETIME

    @rule(kind=st.sampled_from(["rescue", "linux"]))
    def withdraw(self, kind):
        assert not self.robot.good("DELETE", f"/boot/{self.number}/{kind}")[kind]["active"]
        if self.active == kind:
            self.active = None

    @rule(kind=st.sampled_from(["sw", "hw", "power", "power_long"]))
    def press(self, kind):
        self.robot.reset(self.number, kind)
        if (kind in ("sw", "hw") and self.on) or (kind == "power" and not self.on):
            self.boot()
        elif kind in ("power", "power_long"):
            self.on = False

    @rule()
    def wake(self):
        self.robot.good("POST", f"/wol/{self.number}")
        if not self.on:
            self.boot()

    @rule(seconds=st.sampled_from([1, LIFETIME // 2, LIFETIME]))
    def time_passes(self, seconds):
        self.robot.clock.sleep(seconds)

    @invariant()
    def everything_is_as_the_model_says(self):
        if not hasattr(self, "number"):
            return
        self.robot.lab.control("DELETE", "/robot/limits")  # an hour allows fewer requests than a test makes
        assert self.robot.status(self.number) == ("running" if self.on else "shut off")
        overview = self.robot.good("GET", f"/boot/{self.number}")["boot"]
        active = [kind for kind, state in overview.items() if state and state["active"]]
        assert active == ([self.armed()] if self.armed() else [])
        assert self.robot.boots(self.number) == self.boots
        if "rescue" in self.boots:
            last = self.robot.last(self.number)
            assert bool(last["host_key"]) == (last["boot_time"] is not None)


def test_a_server_in_any_order(robot):
    ServerInAnyOrder.robot = robot
    run_state_machine_as_test(
        ServerInAnyOrder,
        settings=settings(
            max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
