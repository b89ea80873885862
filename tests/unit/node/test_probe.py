# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime's probe as a process, with stand-ins for crictl and systemctl in its PATH."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.folders import put
from tests.unit.node.rendering import PROBE_SCRIPT

CRICTL = """#!/bin/sh
echo "$*" >>"$0.asked"
read -r answer <"$0.answer"
[ "$answer" = slow ] && { sleep 1; exit 0; }
[ "$answer" = hang ] && exec sleep 600
exit "$answer"
"""
SYSTEMCTL = """#!/bin/sh
if [ "$1" = show ]; then
    cat "${0%/*}/active"
else
    echo "$*" >>"${0%/*}/done"
fi
"""


class Probe:
    """A probe with a threshold of 3."""

    def __init__(self, folder):
        self.folder = folder
        for name, text in (("crictl", CRICTL), ("systemctl", SYSTEMCTL), ("probe", PROBE_SCRIPT)):
            put(folder / name, text, 0o755)
        (folder / "state").mkdir()
        self.set(active="active", answer="0")

    def set(self, active=None, answer=None):
        if active is not None:
            (self.folder / "active").write_text(active + "\n")
        if answer is not None:
            (self.folder / "crictl.answer").write_text(answer + "\n")

    def run(self, limit=300, units=("containerd.service",)):
        """Lines it said."""
        words = [self.folder / "crictl", "unix:///run/x.sock", str(limit), "3", *units]
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "RUNTIME_DIRECTORY": str(self.folder / "state"),
        }
        ended = subprocess.run(
            [self.folder / "probe", *words], env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        return ended.stdout.splitlines()

    @property
    def done(self):
        path = self.folder / "done"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def counts(self):
        return (self.folder / "state" / "failures").exists()


@pytest.fixture
def probe(tmp_path):
    return Probe(tmp_path)


RESTARTED = [
    "kill --kill-who=main --signal=KILL containerd.service",
    "reset-failed containerd.service",
    "restart containerd.service",
]


def test_a_runtime_that_answers_is_left_alone(probe):
    assert probe.run() == []
    assert probe.done == []
    asked = (probe.folder / "crictl.asked").read_text()
    assert asked == "--runtime-endpoint unix:///run/x.sock --image-endpoint unix:///run/x.sock --timeout 300s info\n"


def test_only_failures_in_a_row_count(probe):
    probe.set(answer="1")
    assert probe.run() == ["<4>no answer from the container runtime within 300 s, 1 of 3"]
    assert probe.run() == ["<4>no answer from the container runtime within 300 s, 2 of 3"]
    probe.set(answer="0")
    assert probe.run() == ["<5>the container runtime answers again"]
    probe.set(answer="1")
    assert probe.run() == ["<4>no answer from the container runtime within 300 s, 1 of 3"]
    assert probe.done == []


def test_the_threshold_restarts_once_and_the_count_begins_again(probe):
    probe.set(answer="1")
    for _number in range(3):
        last = probe.run()
    assert last == ["<4>no answer from the container runtime within 300 s, 3 of 3", "<3>restarting containerd.service"]
    assert probe.done == RESTARTED
    assert not probe.counts


def test_a_hung_runtime_is_a_failure(probe):
    probe.set(answer="hang")
    assert probe.run(limit=1) == ["<4>no answer from the container runtime within 1 s, 1 of 3"]


def test_a_slow_answer_is_an_answer(probe):
    probe.set(answer="slow")
    assert probe.run(limit=300) == []
    assert not probe.counts


def test_what_was_stopped_on_purpose_stays_stopped(probe):
    probe.set(answer="1")
    probe.run()
    probe.set(active="inactive")
    assert probe.run() == ["<5>containerd.service is stopped; not probing"]
    assert probe.run() == []
    assert probe.done == []
    assert not probe.counts


@pytest.mark.parametrize("active", ["failed", "activating", "deactivating"])
def test_a_state_that_is_not_intended_is_restarted(probe, active):
    probe.set(active=active, answer="1")
    for _number in range(3):
        probe.run()
    assert probe.done == RESTARTED


def test_a_damaged_count_begins_again(probe):
    (probe.folder / "state" / "failures").write_text("2; reboot")
    probe.set(answer="1")
    assert probe.run() == ["<4>no answer from the container runtime within 300 s, 1 of 3"]


def test_all_units_of_a_runtime_are_restarted_in_order(probe):
    probe.set(answer="1")
    for _number in range(3):
        probe.run(units=("docker.service", "cri-docker.service"))
    assert [line for line in probe.done if line.startswith("restart")] == [
        "restart docker.service",
        "restart cri-docker.service",
    ]
