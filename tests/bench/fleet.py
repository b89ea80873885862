# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job for 1, 10 and 50 machines, ours and the same job with hetzner.hcloud's modules, on the same lab.

The lab's platform delays are drawn from one seed, so both jobs wait for the same platform. What is compared is the wall
time over the longest delay that any one machine's platform needed by itself, and the API requests per machine.
KUBENODE_BENCH_FLEET="1 10" chooses other sizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.stage import CHECKOUT, KEY_NAME, Stage
from lab.client import call

PEER = Path(__file__).with_name("fleet_peer.yml")
COMMAND = CHECKOUT / "playbooks" / "files" / "image-url-command-raw-disk"
FORKS = "50"


@dataclass
class Run:
    """What one job cost."""

    seconds: float
    platform: float
    requests: float
    failed: int


def measure(size: int, job: str) -> Run:
    """Provision ``size`` fresh machines by our playbook or by the peer's, in a lab of its own."""
    names = [f"bench-{number}" for number in range(1, size + 1)]
    options = ["--kind", "nspawn", "--profile", "hetzner", "--seed", "1", "--datacenters"]
    with Stage(CHECKOUT / "build" / "bench" / job, f"bench-{job}", lab_options=options) as stage:
        peer_variables = {"bench_command": str(COMMAND), "bench_key": KEY_NAME}
        stage.write_inventory(names, known_host_key=False, **peer_variables)
        stage.environment |= {"ANSIBLE_FORKS": FORKS}
        lab = (stage.lab["endpoint"], stage.environment["HCLOUD_TOKEN"])
        call(*lab, "DELETE", "/requests")
        started = time.monotonic()
        with (stage.folder / "output.txt").open("w") as output:
            if job == "ours":
                stage.provision(stdout=output, stderr=subprocess.STDOUT)
            else:
                words = ["ansible-playbook", "-i", str(stage.inventory), str(PEER)]
                environment = stage.environment | {"ANSIBLE_HOST_KEY_CHECKING": "false"}
                environment.pop("ANSIBLE_CALLBACKS_ENABLED")
                subprocess.run(words, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
        seconds = time.monotonic() - started
        requests = len(call(*lab, "GET", "/requests")["requests"])
        platform = max(one["total"] for one in call(*lab, "GET", "/delays")["machines"].values())
        return Run(seconds, platform, requests / size, size - sum(booted(stage, name) for name in names))


def booted(stage: Stage, name: str) -> bool:
    """Whether the machine itself shows what its bootstrap data made: nobody's own word counts."""
    (machine,) = [one for one in stage.machines() if one["name"] == name]
    options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    words = ["ssh", "-q", "-i", str(stage.private_key), *options, f"root@{machine['address']}"]
    answer = subprocess.run(
        [*words, "hostname; cat /etc/kubenode-proof"], stdout=subprocess.PIPE, text=True, check=False
    )
    return answer.stdout.split("\n")[:2] == [name, "made by the bootstrap data"]


def figures(size: int, ours: Run, peer: Run) -> list[dict[str, Any]]:
    """The lines of build/bench/fleet.json for one size."""
    against = "the same job with hetzner.hcloud modules"
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

    return [
        figure(
            "wall time over the longest machine's platform delay",
            ours.seconds / ours.platform,
            peer.seconds / peer.platform,
            "times",
        ),
        figure("API requests per machine", ours.requests, peer.requests, "requests"),
        figure("machines that do not run their new system", ours.failed, peer.failed, "machines"),
    ]


def main() -> int:
    """Measure every size, print one line per figure, write the result file."""
    sizes = [int(size) for size in os.environ.get("KUBENODE_BENCH_FLEET", "1 10 50").split()]
    results = []
    for size in sizes:
        lines = figures(size, measure(size, "ours"), measure(size, "peer"))
        for line in lines:
            print(f"{line['figure']}: {line['value']} {line['unit']} ({line['against']}, ratio {line['ratio']})")
            sys.stdout.flush()
        results += lines
    target = CHECKOUT / "build" / "bench" / "fleet.json"
    target.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 1 if any(line["value"] for line in results if line["unit"] == "machines") else 0


if __name__ == "__main__":
    sys.exit(main())
