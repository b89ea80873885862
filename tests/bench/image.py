# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Uploads of a raw image by our playbook: API requests and wall time, for one image and for several at once.

hcloud-upload-image has no option for another endpoint, so it cannot run against the lab. What it would send is counted
from its source (1.5.0) instead: seven changes an image, and the polls of its actions, whose pauses double from 1 to 30
seconds, over the durations that the lab drew for us. KUBENODE_BENCH_IMAGE="1 4" chooses other numbers of images.
"""

import subprocess
import sys
import time
from typing import Any

import hcloud
import yaml

from dev.testbed import KEY_NAME, Testbed
from lab.state import call_lab
from tests.bench._figures import RESULTS, each_size, figure

#: SSH key, server, rescue, power, image; then server and key are deleted.
CHANGES = 7
#: The actions it waits for, one image at a time: polled one by one.
WAITED = ("create_server", "enable_rescue", "start_server", "create_image")


def polls(seconds: float) -> int:
    """Requests until an action of this length is seen to have ended: after pauses of 1, 2, 4 … 30 seconds each."""
    count, passed, pause = 0, 0.0, 1.0
    while passed < seconds:
        passed += pause
        pause = min(30.0, pause * 2)
        count += 1
    return max(count, 1)


def upload(count: int) -> dict[str, Any]:
    """Upload ``count`` images side by side to a lab of its own, and once more."""
    options = ["--kind", "nspawn", "--profile", "hetzner", "--seed", "1", "--datacenters"]
    with Testbed(RESULTS / "image", "bench-image", lab_options=options) as testbed:
        testbed.playbook = "kubenode.provision.node_image_snapshot"
        images = [{"name": f"bench-{number}", "image_url": testbed.image_url()} for number in range(1, count + 1)]
        given = {"kubenode_ssh_keys": [KEY_NAME], "kubenode_location": "fsn1", "kubenode_image_uploads": images}
        given["kubenode_image_owner"] = "bench"  # names decide about the delays that are drawn
        testbed.inventory.write_text(yaml.safe_dump({"all": {"vars": {**testbed.ssh_settings(), **given}}}))
        lab = (testbed.lab["endpoint"], testbed.token)
        first, second = run(testbed, lab), run(testbed, lab)
        project = hcloud.Client(token=testbed.token, api_endpoint=testbed.lab["endpoint"])
        made, left = project.images.get_all(type="snapshot"), project.servers.get_all()
    return {"first": first, "second": second, "missing": count - len(made), "left": len(left)}


def run(testbed: Testbed, lab: tuple[str, str]) -> dict[str, Any]:
    """One run: its seconds, its requests, and the lengths of the actions it started."""
    call_lab(*lab, "DELETE", "/requests")
    started = time.monotonic()
    with (testbed.folder / "output.txt").open("a") as output:
        testbed.provision(stdout=output, stderr=subprocess.STDOUT)
    seconds = time.monotonic() - started
    requests = call_lab(*lab, "GET", "/requests")["requests"]
    delays = call_lab(*lab, "GET", "/delays")["machines"]
    platform = max([one["total"] for one in delays.values()], default=0.0)
    return {"ratio": seconds / platform if platform else 0.0, "requests": len(requests), "delays": delays}


def theirs(count: int, delays: dict[str, Any]) -> float:
    """Requests that hcloud-upload-image would send for as many images, on machines with these delays."""
    drawn = [machine for name, machine in delays.items() if name.startswith("kubenode-image-")]
    waited = sum(polls(one["seconds"]) for machine in drawn for one in machine["delays"] if one["what"] in WAITED)
    return CHANGES * count + waited


def figures(count: int, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of the result file for one number of images."""
    peer = theirs(count, found["first"]["delays"])
    plural = "s" if count > 1 else ""
    how = f"{count} nspawn machine{plural}, hetzner delays; the peer's requests are counted from its source"
    rows = [
        ("API requests", found["first"]["requests"], "requests", peer),
        ("wall time over the longest machine's platform delay", found["first"]["ratio"], "times", None),
        ("API requests of the second run", found["second"]["requests"], "requests", peer),
        ("images that are missing", found["missing"], "images", None),
        ("machines that were left", found["left"], "machines", None),
    ]
    return [
        figure(f"{name}, {count} image{plural}", value, unit, how, "hcloud-upload-image" if other else None, other)
        for name, value, unit, other in rows
    ]


def main() -> int:
    """Measure, print, write; 1 when an image is missing or a machine was left."""
    bad = ["images", "machines"]
    return each_size("image", "KUBENODE_BENCH_IMAGE", "1 4", lambda count: figures(count, upload(count)), bad)


if __name__ == "__main__":
    sys.exit(main())
