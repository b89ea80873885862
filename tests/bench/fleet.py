# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job for 1, 10 and 50 cloud machines: ours, the same job with hetzner.hcloud's modules, and the floor.

The lab's platform delays are drawn from one seed, so all wait for the same platform, and all go to the same end: the
new system shows its hostname, its proof, and that cloud-init has ended. The floor is the leanest program for it.
KUBENODE_BENCH_FLEET="1 10" chooses other sizes.
"""

import json
import os
import sys
from pathlib import Path

from dev.testbed import KEY_NAME, Testbed
from tests.bench._figures import RESULTS
from tests.bench._fleet import COMMAND, Run, by_peer, measure, run

PEER = Path(__file__).with_name("fleet_peer.yml")
FLOOR = Path(__file__).with_name("_floor.py")
#: Emulated machines share the cores of this one: as many write at once as there are cores, as users would have it.
THROTTLE = os.cpu_count() or 1
CONTESTANTS = {"floor": "the leanest program", "peer": "the same job with hetzner.hcloud modules"}


def job(size: int, whose: str) -> Run:
    """Provision ``size`` fresh machines in a lab of its own."""
    names = [f"bench-{number}" for number in range(1, size + 1)]
    options = ["--kind", "nspawn", "--profile", "hetzner", "--seed", "1", "--datacenters"]
    with Testbed(RESULTS / whose, f"bench-{whose}", lab_options=options) as testbed:
        peer_variables = {"bench_command": str(COMMAND), "bench_key": KEY_NAME}
        testbed.write_inventory(names, known_host_key=False, kubenode_throttle=THROTTLE, **peer_variables)
        if whose == "ours":
            return measure(testbed, names)
        return measure(testbed, names, floor(testbed, names) if whose == "floor" else by_peer(testbed, PEER))


def floor(testbed: Testbed, names: list[str]) -> list[str]:
    """The command of the leanest program, with its job."""
    settings = testbed.bootstrap_settings(known_host_key=False)
    job = {
        "names": names,
        "key_name": KEY_NAME,
        "private_key": str(testbed.private_key),
        "user_data": settings["kubenode_bootstrap_data_file"],
        "image_url": testbed.image_url(),
        "command": str(COMMAND),
        "throttle": THROTTLE,
    }
    path = testbed.folder / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    collections = testbed.environment["ANSIBLE_COLLECTIONS_PATH"]
    return ["env", f"PYTHONPATH={collections}", sys.executable, str(FLOOR), str(path)]


if __name__ == "__main__":
    sys.exit(run("fleet", CONTESTANTS, job))
