# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job for 1, 10 and 50 cloud machines, ours and the same job with hetzner.hcloud's modules, on the same lab.

The lab's platform delays are drawn from one seed, so both jobs wait for the same platform. What is compared is the wall
time over the longest delay that any one machine's platform needed by itself, and the API requests per machine.
KUBENODE_BENCH_FLEET="1 10" chooses other sizes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dev.stage import KEY_NAME, Stage
from tests.bench._fleet import COMMAND, RESULTS, Run, measure, run

PEER = Path(__file__).with_name("fleet_peer.yml")


def job(size: int, whose: str) -> Run:
    """Provision ``size`` fresh machines in a lab of its own."""
    names = [f"bench-{number}" for number in range(1, size + 1)]
    options = ["--kind", "nspawn", "--profile", "hetzner", "--seed", "1", "--datacenters"]
    with Stage(RESULTS / whose, f"bench-{whose}", lab_options=options) as stage:
        peer_variables = {"bench_command": str(COMMAND), "bench_key": KEY_NAME}
        stage.write_inventory(names, known_host_key=False, **peer_variables)
        return measure(stage, names, None if whose == "ours" else PEER)


if __name__ == "__main__":
    sys.exit(run("fleet", "the same job with hetzner.hcloud modules", job))
