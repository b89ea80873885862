# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of runs that look like real ones."""

from __future__ import annotations

import random
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, text
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import report_files, results

STARTED = text.from_rfc3339("2026-11-21T10:00:00.000Z")
#: Shortest and longest seconds in each state, as measured on the platform; writing takes as long as the image.
_SPANS = ((0.2, 1.5), (11, 21), (9, 23), (37, 42), (0, 30), (20, 90), (18, 40))
_REASONS = (
    "the image command failed: exit code 28 (no space left on device). Choose a larger server_type, or a smaller "
    "image. Log: kubenode/logs/x.log",
    "the rescue did not come up: no SSH server answers (192.0.2.7 port 22: timed out). Look at its console; run "
    "again to arm it once more",
)


def run(count: int, seed: int = 1, roles: bool = False) -> tuple[results.Report, float]:
    """A report of ``count`` machines, of which about one in twenty fails, and the time at which the run ended."""
    source, report, end = random.Random(seed), results.Report(), STARTED
    for number in range(1, count + 1):
        name, at, steps = f"node-{number}", STARTED + 2.0, []
        fails = number % 20 == 7
        states = boot_states.ORDER[:-1]
        last = source.choice((4, 6)) if fails else 7
        for place, (low, high) in enumerate(_SPANS[:last]):
            seconds = round(source.uniform(low, high), 3)
            at += seconds
            to = boot_states.PROVISIONING_FAILED if fails and place + 1 == last else states[place + 1]
            steps.append(
                {"machine": name, "from": states[place], "to": to, "at": text.to_rfc3339(at), "seconds": seconds}
            )
        machine: dict[str, Any] = {"name": name, "boot_state": steps[-1]["to"], "transitions": steps, "changed": True}
        if fails:
            lines = [f"0.{one} out writing {one} of 8 GiB" for one in range(8)] + [
                "12.41 err dd: error writing '/dev/sda': No space left"
            ]
            machine.update(
                failed=True, msg=f"{name}: {source.choice(_REASONS)}", interleaved_tail=lines, stderr_tail=lines[-1:]
            )
        else:
            machine.update(verified=number % 30 != 11)
        if number % 40 == 3:
            machine["warned"] = [f"{name}: disk sdb could boot, too"]
            machine["drift"] = [
                {
                    "what": "image_url",
                    "runs": "https://a/v1.raw",
                    "since": "2026-11-01T10:00:00Z",
                    "wanted": "https://a/v2.raw",
                }
            ]
        machine["log_file"] = f"/srv/kubenode/logs/{name}/image-url-command.log"
        report.add("localhost", {"machines": [machine], "api_calls": 3})
        if roles and not fails:
            report.phase(name, "base", at, at + source.uniform(40, 70), changed=True, failed=None)
            at += 80
            report.phase(
                name,
                "join",
                at,
                at + source.uniform(8, 20),
                changed=True,
                failed="csr_pending: no approver" if number == 2 else None,
            )
            at += 20
        end = max(end, at)
    report.add(
        "localhost",
        {
            "machines": [{"name": "node-1", "boot_state": "OperatingSystemRunning", "verified": True}],
            "api_budget": {"api": "hcloud", "limit": 3600, "remaining": 3600 - 3 * count},
        },
    )
    return report, end + 1.0


def data(count: int, seed: int = 1, roles: bool = False, *, final: bool = True, check: bool = False) -> dict[str, Any]:
    """The same as the callback makes it."""
    report, end = run(count, seed, roles)
    files = report_files.ReportFiles(lambda _data, _now: {"check": check, "cost": None}, print, STARTED)
    files.report = report
    return files.data(end, final=final)
