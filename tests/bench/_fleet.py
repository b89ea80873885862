# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fleet benchmarks share: one job on one lab, and figures beside a peer's on a lab like it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.stage import CHECKOUT, Stage
from lab.client import call

COMMAND = CHECKOUT / "playbooks" / "files" / "image-url-command-raw-disk"
FORKS = "50"
RESULTS = CHECKOUT / "build" / "bench"


@dataclass
class Run:
    """What one job cost; ``resets`` only where a machine needs them."""

    seconds: float
    platform: float
    requests: float
    failed: int
    resets: float = 0


def measure(stage: Stage, names: Sequence[str], peer: Path | None) -> Run:
    """Provision the machines by our playbook or by the peer's; the stage's inventory is written."""
    stage.environment |= {"ANSIBLE_FORKS": FORKS}
    lab = (stage.lab["endpoint"], stage.token)
    call(*lab, "DELETE", "/requests")
    started = time.monotonic()
    with (stage.folder / "output.txt").open("w") as output:
        if peer is None:
            stage.provision(stdout=output, stderr=subprocess.STDOUT)
        else:
            words = ["ansible-playbook", "-i", str(stage.inventory), str(peer)]
            environment = stage.environment | {"ANSIBLE_HOST_KEY_CHECKING": "false"}
            environment.pop("ANSIBLE_CALLBACKS_ENABLED")
            subprocess.run(words, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    seconds = time.monotonic() - started
    requests = call(*lab, "GET", "/requests")["requests"]
    resets = sum(one["method"] == "POST" and one["path"].startswith("/reset/") for one in requests)
    platform = max(one["total"] for one in call(*lab, "GET", "/delays")["machines"].values())
    size = len(names)
    failed = size - sum(booted(stage, name) for name in names)
    return Run(seconds, platform, len(requests) / size, failed, resets / size)


def booted(stage: Stage, name: str) -> bool:
    """Whether the machine itself shows what its bootstrap data made: nobody's own word counts."""
    address = stage.address(name)
    options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    words = ["ssh", "-q", "-i", str(stage.private_key), *options, f"root@{address}"]
    answer = subprocess.run(
        [*words, "hostname; cat /etc/kubenode-proof"], stdout=subprocess.PIPE, text=True, check=False
    )
    return answer.stdout.split("\n")[:2] == [name, "made by the bootstrap data"]


def figures(size: int, ours: Run, peer: Run, against: str) -> list[dict[str, Any]]:
    """The lines of the result file for one size."""
    how = f"{size} nspawn machines, hetzner delays, {FORKS} forks, same seed, same session"

    def figure(name: str, value: float, other: float, unit: str) -> dict[str, Any]:
        return {
            "figure": f"{name}, {size} machine{'s' if size > 1 else ''}",
            "value": round(value, 2),
            "unit": unit,
            "against": f"{against}: {round(other, 2)}",
            "ratio": round(value / other, 3) if other else None,
            "how": how,
        }

    lines = [
        figure(
            "wall time over the longest machine's platform delay",
            ours.seconds / ours.platform,
            peer.seconds / peer.platform,
            "times",
        ),
        figure("API requests per machine", ours.requests, peer.requests, "requests"),
        figure("machines that do not run their new system", ours.failed, peer.failed, "machines"),
    ]
    if peer.resets:
        lines.append(figure("resets per machine", ours.resets, peer.resets, "resets"))
    return lines


def run(name: str, against: str, job: Callable[[int, str], Run]) -> int:
    """Measure every size ours and the peer's, print one line per figure, write the result file."""
    sizes = [int(size) for size in os.environ.get("KUBENODE_BENCH_FLEET", "1 10 50").split()]
    results = []
    for size in sizes:
        lines = figures(size, job(size, "ours"), job(size, "peer"), against)
        for line in lines:
            print(f"{line['figure']}: {line['value']} {line['unit']} ({line['against']}, ratio {line['ratio']})")
            sys.stdout.flush()
        results += lines
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 1 if any(line["value"] for line in results if line["unit"] == "machines") else 0
