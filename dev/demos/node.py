# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to a Ready Kubernetes node on the lab: image command, base, join, a pod; and then again."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.demos import done, parser, say, show, twice
from dev.testbed import CHECKOUT, Testbed
from lab import cache, cluster, mirror

NAME = "node-1"
PLAYBOOK = """---
- import_playbook: kubenode.provision.hcloud_image_url
- import_playbook: kubenode.provision.node
"""
PAUSE = "3.10.2"
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "lab",
    "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}},
        {"type": "loopback"},
    ],
}  # fmt: skip


class NodeTestbed(Testbed):
    """A testbed whose machines find packages and programs on the lab's mirror, and a cluster to join."""

    def __init__(self, folder: Path, name: str, *, lab_options: Sequence[str] = (), keep: bool = False) -> None:
        """``lab_options`` go to ``python -m lab up``; ``keep`` leaves the lab up at the end."""
        super().__init__(folder, name, lab_options=lab_options, keep=keep)
        self.kubeconfig = ""

    def _prepare(self) -> None:
        super()._prepare()
        playbook = self.folder / "playbook.yml"
        playbook.write_text(PLAYBOOK, encoding="utf-8")
        self.playbook = str(playbook)
        self.lab_command("cluster", "up")
        self.kubeconfig = self.lab_command("cluster", "kubeconfig").strip()

    def lab_command(self, *arguments: str) -> str:
        """What ``python -m lab ARGUMENTS`` prints for this lab."""
        words = [sys.executable, "-m", "lab", *arguments, "--name", self.name]
        return subprocess.run(words, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True).stdout

    def user_data(self) -> dict[str, Any]:
        """Packages come from the lab's mirror."""
        return mirror.cloud_config(self.lab["mirror_url"], "trixie")

    def node_settings(self) -> dict[str, Any]:
        """Variables of base and join."""
        about = json.loads(self.lab_command("cluster", "status", "--json"))
        names = ("containerd", "runc", "cni-plugins", "crictl", "kubernetes-node")
        sums = mirror.checksums(*names, real=(cluster.KUBERNETES,))
        archive = mirror.find(f"images/pause-{PAUSE}.tar")
        assert archive is not None
        return {
            "kubenode_image_url": self.image_url(image="debian13"),
            "base_mirror": self.lab["mirror_url"],
            "base_checksums": sums,
            "base_kubernetes_version": cluster.KUBERNETES,
            "base_containerd_version": "2.1.9",
            "base_runc_version": "1.3.6",
            "base_cni_plugins_version": "1.9.1",
            "base_version_check": "warn",  # Debian's containerd is older than what Kubernetes asks for
            "base_image_archives": [
                {"url": f"{self.lab['mirror_url']}/images/pause-{PAUSE}.tar", "sha256": cache.sha256(archive)}
            ],
            "join_api_server": about["endpoint"],
            "join_ca_file": about["ca_file"],
            "join_token_create": {"kubeconfig": self.kubeconfig},
            "join_labels": {"example.com/made-by": "demo", "topology.kubernetes.io/region": "fsn1"},
            "join_cni_config": json.dumps(NETWORK),
            "join_ready": True,
            "join_timeout": 600,
        }

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints, as the cluster's administrator."""
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        words = [self._kubectl(), *arguments]
        return subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _kubectl(self) -> str:
        return str(cluster.ensure().kubectl)


def run_pod(testbed: NodeTestbed, limit: float = 600) -> bool:
    """Start a pod on the node and show what it says; False when it does not run within ``limit`` seconds."""
    image = f"registry.k8s.io/pause:{PAUSE}"
    started = ["--image-pull-policy=Never", "--restart=Never", "--", "say", "hello from a pod"]
    testbed.kubectl("run", "hello", f"--image={image}", *started)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        phase = testbed.kubectl("get", "pod", "hello", "-o", "jsonpath={.status.phase}")
        if phase == "Running":
            show(testbed.kubectl("get", "pods", "-o", "wide"))
            return True
        time.sleep(1)
    show(testbed.kubectl("describe", "pod", "hello"))
    return False


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when the node is Ready, its pod runs, and the second run changed nothing."""
    chosen = parser("node", __doc__, profile=False).parse_args(arguments)
    say("starting the lab and its control plane (the first time it builds images, and Kubernetes of Go modules)")
    say("the machine is a virtual one, since a kubelet needs a kernel of its own; without KVM this takes minutes")
    folder = CHECKOUT / "build" / "demo-node"
    with NodeTestbed(folder, "demo-node", lab_options=["--kind", "qemu"], keep=chosen.keep) as testbed:
        testbed.write_inventory([NAME], **testbed.node_settings())

        def proof() -> bool:
            say("what the control plane says: kubectl get nodes")
            show(testbed.kubectl("get", "nodes", "-o", "wide", "--show-labels"))
            say("a pod on it")
            runs = run_pod(testbed)
            if not runs:
                say("the pod does not run")
            return runs

        code = twice(testbed, proof)
    return done(testbed, code)
