# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH is lost in the middle: what may be sent again is, for as long as a slow machine may need."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import program_run
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote as remote_module
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import OTHER_KEY, SILENT, Unreachable


class Clock:
    """A clock that only moves during a sleep."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Remote:
    """Refuses so many scripts, then answers."""

    def __init__(self, refusals, kind=SILENT):
        self.refusals, self.kind, self.closed, self.asked = refusals, kind, 0, 0

    def run(self, _script, *_arguments, data=None):
        self.asked += 1
        if self.asked <= self.refusals:
            raise Unreachable(self.kind, "Connection refused")
        return 0, json.dumps({"failed": False, "disks": []})

    def close(self):
        self.closed += 1


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(remote_module, "time", clock)
    return clock


def test_a_step_waits_for_a_machine_that_is_away_for_half_a_minute(clock):
    remote = Remote(refusals=9)
    assert program_run.call_step(remote, "look", again=True)["disks"] == []
    assert remote.closed == 9
    assert 20 < clock.now < remote_module.PATIENCE
    assert clock.slept == sorted(clock.slept)


def test_a_step_that_changes_something_is_sent_once(clock):
    remote = Remote(refusals=1)
    with pytest.raises(program_run.StepFailed, match=r"SSH was lost \(Connection refused\); run again"):
        program_run.call_step(remote, "wipe")
    assert (remote.asked, clock.slept) == (1, [])


@pytest.mark.parametrize(("kind", "least"), [(SILENT, 60), (OTHER_KEY, 0)])
def test_patience_has_an_end(clock, kind, least):
    with pytest.raises(program_run.StepFailed, match="run again"):
        program_run.call_step(Remote(refusals=10**6, kind=kind), "look", again=True)
    assert least <= clock.now <= least + 5 * bool(least)
