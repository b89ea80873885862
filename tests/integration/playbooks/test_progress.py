# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of six while it runs: one table on a terminal, sums on a pipe, and a stdout that programs can read."""

import contextlib
import json
import os
import signal
import subprocess
import termios
from pathlib import Path

import pytest

from tests.integration.playbooks.screens import OnTerminal
from tests.integration.testbeds import NOWHERE
from tests.waiting import until

NAMES, OTHERS = ([f"{stem}-{number}" for number in range(1, 7)] for stem in ("fleet", "other"))
#: Seconds until a run counts as hanging.
LIMIT = 800


@pytest.fixture(scope="module")
def fleet(operator):
    """A lab whose machines never answer: they are late, tried once more, and given up."""
    lab = operator("dry")
    lab.testbed.image_url = lambda: NOWHERE
    return lab


def test_programs_read_json_and_people_read_sums(fleet):
    fleet.testbed.write_inventory(NAMES, kubenode_rescue_timeout=2)
    done = subprocess.run(
        fleet.testbed.playbook_command(), cwd=fleet.testbed.folder,
        env={**fleet.environment, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        capture_output=True, text=True, check=False, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode != 0
    assert set(json.loads(done.stdout)["stats"]) >= set(NAMES)
    lines = done.stderr.splitlines()
    assert any(line.startswith("6/6 done · API ") for line in lines), done.stderr
    assert "0/6 done · 6 late" in lines
    assert "0/6 done · 6 failed" in lines
    assert not [line for line in lines[lines.index("0/6 done · 6 failed") :] if line.startswith("6/6 done")], (
        done.stderr
    )
    assert "PROVISION REPORT" in lines
    # no line for a step of a machine, and one for each try that ended badly
    of_one = [line for line in lines if line.startswith("fleet-1: ")]
    assert [line.split(": ")[1] for line in of_one] == ["late", "FAILED"], done.stderr


def writers(run):
    """Processes that have the progress file of a run open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            for number in os.listdir(process / "fd"):
                with contextlib.suppress(OSError):  # it has just closed the file
                    link = os.readlink(process / "fd" / number)
                    if f"ansible-local-{run}" in link and "kubenode-progress-" in link:
                        found.append(link)
    return found


#: What keeps a task of the API phase at work, and the state of its machines meanwhile.
MAKING = {"point": "request", "method": "POST", "path": "/servers", "status": 503, "code": "unavailable"}
ARMING = {"point": "action", "command": "enable_rescue", "effect": "stuck"}


@pytest.mark.parametrize(
    ("by", "fault", "state"),
    [
        (signal.SIGKILL, MAKING, ""),
        (signal.SIGINT, ARMING, "EnablingRescue"),
        (signal.SIGTERM, ARMING, "EnablingRescue"),
    ],
    ids=["killed", "interrupted", "terminated"],
)
def test_a_run_that_ends_in_its_api_phase_leaves_its_own_report(fleet, by, fault, state):
    names = [f"{by.name.lower()}-{number}" for number in range(1, 7)]
    fleet.testbed.write_inventory(names)
    report, page = fleet.testbed.report, fleet.testbed.report.with_suffix(".html")
    report.write_text(json.dumps({"finished": "earlier", "machines": []}))
    page.write_text("earlier")
    fleet.fault(**fault, times=10**6)
    run = fleet.start()

    def states():
        return [(one["name"], one["boot_state"]) for one in fleet.report["machines"]]

    try:
        run.until(lambda: states() == [(name, state) for name in names], "a report")
        run.interrupt(by)
        until(lambda: not writers(run.process.pid), "the end of what makes the servers")
    finally:
        run.kill()
        fleet.forget_faults()
    left = fleet.report
    assert (left["finished"], left["interrupted"]) == (None, by != signal.SIGKILL)
    assert states() == [(name, state) for name in names]
    assert not any(one["failed"] for one in left["machines"])
    # The servers that are armed exist; of those that the API does not make, nothing but the requests is known.
    assert {(bool(one["id"] and one["address"]), one["changed"]) for one in left["machines"]} == {(bool(state),) * 2}
    assert left["changed"] == bool(state)
    assert left["api_calls"]["total"] > 0
    assert left["not_attempted"] == []
    assert (f"Report: {report}" in run.output) == left["interrupted"]
    assert (
        "The run was interrupted" if left["interrupted"] else "The run goes on, or it was killed"
    ) in page.read_text()
    assert "creating, arming and starting 6 machines: at most 26 API requests, 8 at a time; they take " in run.output


def table(screen):
    """The rows of the table on a screen, below its head."""
    lines = screen.visible
    heads = [place for place, line in enumerate(lines) if line.startswith("machine ")]
    return lines[heads[-1] + 1 :] if heads else []


def test_a_terminal_shows_one_table_and_can_be_used_after_ctrl_c(fleet):
    fleet.testbed.write_inventory(OTHERS, kubenode_rescue_timeout=600)
    run = OnTerminal(fleet.testbed.playbook_command(), fleet.environment, fleet.testbed.folder)
    writes = "TASK [Write the disks"

    def waits(screen):
        """Whether the table of the SSH phase shows the machines."""
        rows = [row for row in table(screen) if row.startswith("other-")]
        return len(rows) == 6 and any(writes in line for line in screen.lines)

    try:
        assert run.read(waits, LIMIT), run.output
        lines = run.screen.lines
        assert sorted(row.split()[0] for row in table(run.screen) if row.strip()) == OTHERS
        assert len([line for line in lines if line.startswith("machine ")]) == 1, "those of the tasks before are gone"
        assert [line for line in lines if line.startswith("6/6 done · API ")], "their sums are not"
        run.press(b"\x03")
        run.read(limit=LIMIT)
        assert termios.tcgetattr(run.slave) == run.before
    finally:
        run.end()
    # the cursor rests below all that was there; nothing but it was moved
    assert run.screen.unknown == []
    assert run.screen.row == len(run.screen.lines) - 1
