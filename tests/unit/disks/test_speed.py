# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast disks are read: what fio says, which disk is too slow, and what is reported."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import targets as disk_targets
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_gather, disk_tools, guard
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.job import JobError
from tests.unit.common import odd
from tests.unit.disks.recorded import block, disk


def fio(speed: object, error: object = 0) -> str:
    return json.dumps({"fio version": "fio-3.33", "jobs": [{"jobname": "read", "error": error, "read": {"bw": speed}}]})


@pytest.mark.parametrize(
    ("code", "text", "speed", "failed", "detail"),
    [
        (0, fio(39999), 39999, False, ""),
        (0, "fio: a warning\n" + fio(0), 0, False, ""),
        (1, fio(5000, error=5), None, True, "reading it fails (fio: error 5)"),
        (124, "", None, True, "reading it did not end"),
        (137, "", None, True, "reading it did not end"),
        (1, "fio: cannot start", None, False, "fio measured nothing (exit code 1)"),
        (1, fio(50000), None, False, "fio measured nothing (exit code 1)"),
        (0, fio("fast"), None, False, "fio measured nothing (exit code 0)"),
        (0, '{"jobs": []}', None, False, "fio measured nothing (exit code 0)"),
        (0, "[" * 100_000, None, False, "fio measured nothing (exit code 0)"),
    ],
)
def test_what_fio_says(code, text, speed, failed, detail):
    assert disk_tools.read_speed(code, text) == {"speed": speed, "failed": failed, "detail": detail}


@odd.examples(True, -1, 10**400, "9" * 5000, "²", 1.5, None)
@given(st.none() | st.booleans() | st.integers() | odd.texts)
def test_a_speed_is_a_number_or_unknown(value):
    found = disk_tools.read_speed(0, fio(value))["speed"]
    assert found is None or 0 <= found < 1 << 63


@given(st.text(max_size=60))
@example("{")
@example('{"jobs": [{"error": null, "read": null}]}')
def test_any_text(text):
    assert set(disk_tools.read_speed(0, text)) == {"speed", "failed", "detail"}


class Machine:
    """A rescue whose fio gives these speeds, one after the other."""

    def __init__(self, *speeds: int) -> None:
        self.speeds, self.asked = list(speeds), []

    def __call__(self, argv, **_more):
        words = argv
        if words[0].endswith("/lsblk"):
            disks = [block("sda", 1 << 30, serial="A"), block("sdb", 1 << 30, serial="B", rota=True)]
            return 0, json.dumps({"blockdevices": disks}), ""
        if words[0].endswith("/fio"):
            self.asked.append(words[1:])
            return 0, fio(self.speeds.pop(0)), ""
        return 2, "", ""


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.setattr(disk_targets, "Tools", Tools)


class Tools:
    """All tools are there."""

    def __init__(self, run, **_how):
        self._run = run

    def has(self, name):
        return name in ("fio", "lsblk")

    def __call__(self, name, *arguments, limit=30):
        return self._run(["/usr/bin/" + name, *arguments])


def targets(*serials: str) -> list[dict]:
    now = {one["serial"]: one for one in disk_targets.look_at_disks(Machine(), health=False)["disks"]}
    return [{key: now[one][key] for key in ("name", "serial", "wwn", "size", "model", "content_id")} for one in serials]


@pytest.mark.parametrize(
    ("speeds", "found"),
    [
        ((90000, 30000), [90000, 30000]),
        ((39999, 90000, 30000), [90000, 30000]),
        ((39999, 100, 30000), [39999, 30000]),
        ((90000, 19999, 19998), [90000, 19999]),
    ],
)
def test_a_slow_disk_gets_a_second_try(tools, speeds, found):
    machine = Machine(*speeds)
    measured = disk_targets.measure_disks(machine, targets("A", "B"))["disks"]
    assert [one["speed"] for one in measured] == found
    assert len(machine.asked) == len(speeds)
    for words in machine.asked:
        assert {"--readonly", "--rw=read", "--direct=1", "--runtime=3"} <= set(words)


def test_a_disk_that_is_another_one_now_is_not_measured(tools):
    (target,) = targets("A")
    with pytest.raises(JobError, match="not there any more"):
        disk_targets.measure_disks(Machine(), [{**target, "serial": "C"}])


def test_without_fio_nothing_is_known():
    class Nothing:
        def has(self, name):
            return False

    assert disk_gather.read_speed(Nothing(), "/dev/sda") == {
        "speed": None,
        "failed": False,
        "detail": "fio is not there",
    }


def test_what_is_reported():
    disks = [disk("sda", serial="A"), disk("sdb", serial="B", rotational=True), disk("sdc"), disk("sdd")]
    said = [
        {"speed": 39999, "failed": False, "detail": ""},
        {"speed": 20000, "failed": False, "detail": ""},
        {"speed": None, "failed": True, "detail": "reading it fails (fio: error 5)"},
        {"speed": None, "failed": False, "detail": "fio is not there"},
    ]
    against, unknown = guard.speeds(disks, ["sda", "sdb", "sdc", "sdd"], said)
    assert len(against) == 2
    assert "is read at 39999 KiB/s, and 40000 are the least" in against[0]
    assert "sdc" in against[1]
    assert "reading it fails (fio: error 5); replace it, or set health: check" in against[1]
    (text,) = unknown
    assert "sdd" in text
    assert text.endswith("how fast it is read is unknown: fio is not there")
