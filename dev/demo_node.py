# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to a Ready Kubernetes node on the lab: image command, base, join, a pod; and then again."""

from __future__ import annotations

import argparse
import sys
import time

from dev.nodes import PAUSE, NodeStage
from dev.stage import CHECKOUT

NAME = "node-1"


def say(line: str) -> None:
    """One line of the demo's own, apart from what the tools print."""
    print(f"demo: {line}", flush=True)


def show(text: str) -> None:
    """What a tool said, indented."""
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


def run_pod(stage: NodeStage, limit: float = 600) -> bool:
    """Start a pod on the node and show what it says; False when it does not run within ``limit`` seconds."""
    image = f"registry.k8s.io/pause:{PAUSE}"
    stage.kubectl("run", "hello", f"--image={image}", "--image-pull-policy=Never", "--restart=Never", "--", "say",
                  "hello from a pod")  # fmt: skip
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        phase = stage.kubectl("get", "pod", "hello", "-o", "jsonpath={.status.phase}")
        if phase == "Running":
            show(stage.kubectl("get", "pods", "-o", "wide"))
            return True
        time.sleep(1)
    show(stage.kubectl("describe", "pod", "hello"))
    return False


def main() -> int:
    """Exit code 0 when the node is Ready, its pod runs, and the second run changed nothing."""
    parser = argparse.ArgumentParser(prog="dev/demo-node", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the lab up to look around in")
    chosen = parser.parse_args()
    say("starting the lab and its control plane (the first time it builds images, and Kubernetes of Go modules)")
    say("the machine is a virtual one, since a kubelet needs a kernel of its own; without KVM this takes minutes")
    folder = CHECKOUT / "build" / "demo-node"
    with NodeStage(folder, "demo-node", lab_options=["--kind", "qemu"], keep=chosen.keep) as stage:
        stage.write_inventory([NAME], **stage.node_settings())
        if code := stage.provision(say=say):
            say(f"the run failed; its logs are in {stage.folder / 'kubenode' / 'logs'}")
            return code
        say("what the control plane says: kubectl get nodes")
        show(stage.kubectl("get", "nodes", "-o", "wide", "--show-labels"))
        say("a pod on it")
        if not run_pod(stage):
            say("the pod does not run")
            return 1
        if not stage.unchanged_again(say):
            return 1
    say(f"done; the report of the first run: {stage.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
