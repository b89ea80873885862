# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job for 1, 10 and 50 dedicated servers, ours and CAPH's requests made one host at a time, on the same lab.

Delays come from one seed, so both jobs wait for the same machines. KUBENODE_BENCH_FLEET="1 10" chooses other sizes.
"""

import sys
from pathlib import Path

from dev.testbed import DedicatedTestbed
from tests.bench._figures import RESULTS
from tests.bench._fleet import COMMAND, Run, by_peer, measure, run

PEER = Path(__file__).with_name("fleet_robot_peer.yml")
FIRST = 5001


def job(size: int, whose: str) -> Run:
    """Provision ``size`` servers with empty disks in a lab of its own."""
    numbers = {f"bench-{index + 1}": FIRST + index for index in range(size)}
    disks = [{"kind": "nvme", "size": "8G"}, {"kind": "nvme", "size": "9G"}]
    hardware = {"product": "AX41-NVMe", "reset": ["power", "power_long", "hw", "man"], "memory_mib": 1024}
    servers = [{"number": number, "disks": disks, **hardware} for number in numbers.values()]
    options = ["--kind", "nspawn", "--profile", "hetzner", "--seed", "1"]
    with DedicatedTestbed(RESULTS / f"robot-{whose}", f"bench-robot-{whose}", servers, lab_options=options) as testbed:
        variables = {
            "kubenode_root_device_hints": {"smallest": True},
            "kubenode_image_url": testbed.image_url(),
            "kubenode_image_url_command": "image-url-command-raw-disk",
            "kubenode_first_contact": "reset",
            "bench_command": str(COMMAND),
            "bench_device": "nvme0n1",
        }
        hosts = {name: {"kubenode_server_number": number} for name, number in numbers.items()}
        testbed.write_groups({"machines": {"hosts": hosts, "vars": variables}}, known_host_key=False)
        return measure(testbed, list(numbers), None if whose == "ours" else by_peer(testbed, PEER))


if __name__ == "__main__":
    sys.exit(run("fleet_robot", {"peer": "CAPH's requests, one host at a time"}, job))
