# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes nodes on the lab, with a real control plane: one machine, and a whole site by one playbook."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import yaml

from dev.demos import done, parser, say, show, twice
from dev.testbed import CHECKOUT, KEY_NAME, Testbed
from lab import cache, cluster, mirror
from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL

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


def of_the_mirror(mirror_url: str, programs: str, *, runc: str) -> dict[str, Any]:
    """Variables of base by which all comes from the lab's mirror; ``programs``: the part that has the kubelet."""
    sums = mirror.checksums("containerd", "runc", "cni-plugins", "crictl", programs, real=(KUBERNETES,))
    archive = mirror.find(f"images/pause-{PAUSE}.tar")
    assert archive is not None
    return {
        "base_mirror": mirror_url,
        "base_checksums": sums,
        "base_containerd_version": "2.1.9",
        "base_runc_version": runc,
        "base_cni_plugins_version": "1.9.1",
        "base_version_check": "warn",  # Debian's containerd is older than what Kubernetes asks for
        "base_image_archives": [{"url": f"{mirror_url}/images/{archive.name}", "sha256": cache.sha256(archive)}],
    }


class NodeTestbed(Testbed):
    """A testbed whose machines find packages and programs on the lab's mirror, and a cluster to join."""

    kubeconfig = ""

    def _prepare(self) -> None:
        super()._prepare()
        playbook = self.folder / "playbook.yml"
        playbook.write_text(PLAYBOOK, encoding="utf-8")
        self.playbook = str(playbook)
        self._lab("cluster", "up")
        self.kubeconfig = self._lab("cluster", "kubeconfig").strip()

    def user_data(self) -> dict[str, Any]:
        """Packages come from the lab's mirror."""
        return mirror.cloud_config(self.lab["mirror_url"], "trixie")

    def node_settings(self) -> dict[str, Any]:
        """Variables of base and join."""
        about = json.loads(self._lab("cluster", "status", "--json"))
        return {
            **of_the_mirror(self.lab["mirror_url"], "kubernetes-node", runc="1.3.6"),
            "kubenode_image_url": self.image_url(image="debian13"),
            "base_kubernetes_version": KUBERNETES,
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
        words = [str(cluster.ensure().kubectl), *arguments]
        return subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


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


def node(arguments: Sequence[str]) -> int:
    """From nothing to a Ready Kubernetes node on the lab: image command, base, join, a pod; and then again.

    Exit code 0 when the node is Ready, its pod runs, and the second run changed nothing.
    """
    chosen = parser("node", node.__doc__, profile=False).parse_args(arguments)
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


WRITTEN, NAMED, METAL = "cloud-1", "cloud-2", "metal-1"
DISK = {"kind": "nvme", "size": "8G", "serial": "S455NY0M400001", "wwn": "eui.0025385b71b00001"}
SERVERS = [{"number": 4711, "product": "AX42", "memory_mib": 2048, "disks": [DISK]}]
#: Debian 12 of installimage: its C library is older than what runc 1.3 needs
BOOKWORM = {"base_runc_version": "1.1.5"}
SYSTEM = "debian-13"
IMAGE = f"{SYSTEM}-kubernetes-{KUBERNETES}"


class SiteTestbed(NodeTestbed):
    """A testbed for the playbook site, with a dedicated server beside the cloud; its machines are containers."""

    def _prepare(self) -> None:
        super()._prepare()
        self.playbook = "kubenode.provision.site"

    def _options(self) -> Sequence[str]:
        file = self.folder / "dedicated.yml"
        file.write_text(yaml.safe_dump(SERVERS), encoding="utf-8")
        return [*super()._options(), "--dedicated", str(file)]

    def _credentials(self) -> dict[str, str]:
        return {**super()._credentials(), **self.robot_credentials()}

    def bootstrap_data(self, suite: str) -> str:
        """Packages come from the lab's mirror; a container has no kernel of its own and cannot grow its disk."""
        more = {"growpart": {"mode": "off"}, "bootcmd": [["sh", "-c", SHARED_KERNEL]]}
        key = self.private_key.with_suffix(".pub").read_text(encoding="ascii").strip()
        data = {**mirror.cloud_config(self.lab["mirror_url"], suite), **more}
        return "#cloud-config\n" + yaml.safe_dump({**data, "ssh_authorized_keys": [key], "disable_root": False})

    def make_image(self) -> int:
        """Make the node image that one of the machines is created from; the exit code of the run."""
        settings = self.node_settings()
        base = {"name": SYSTEM, "image_url": settings["kubenode_image_url"], "command": "image-url-command-raw-disk"}
        variables = {
            **self.ssh_settings(),
            **{
                name: settings[name]
                for name in settings
                if name.startswith("base_") and name != "base_kubernetes_version"
            },
            "kubenode_ssh_keys": [KEY_NAME],
            "kubenode_location": "nbg1",
            "kubenode_bootstrap_data": self.bootstrap_data("trixie"),
            "kubenode_image_matrix": {"kubernetes": [KUBERNETES], "base": [base]},
        }
        inventory = self.folder / "image.yml"
        inventory.write_text(yaml.safe_dump({"all": {"vars": variables}}, sort_keys=False), encoding="utf-8")
        command = ["ansible-playbook", "-i", str(inventory), "kubenode.provision.node_image_snapshot"]
        say(shlex.join(command))
        return subprocess.run(command, env=self.environment, cwd=self.folder, check=False).returncode

    def write_fleet(self) -> None:
        """The inventory of docs/site.md: three ways to be made, two failure domains."""
        settings = {**self.node_settings(), "join_kubelet_config": SHARED_GROUPS, "kubenode_serial": "failure_domain"}
        image_url = settings.pop("kubenode_image_url")
        cloud = {
            "kubenode_server_type": "cx23",
            "kubenode_location": "{{ failure_domain }}",
            "kubenode_ssh_keys": [KEY_NAME],
        }
        groups = {
            "by_image_command": {
                "hosts": {WRITTEN: {"failure_domain": "fsn1"}},
                "vars": {
                    **cloud,
                    "kubenode_image_url": image_url,
                    "kubenode_image_url_command": "image-url-command-raw-disk",
                    "kubenode_bootstrap_data": self.bootstrap_data("trixie"),
                },
            },
            "of_an_image": {
                "hosts": {NAMED: {"failure_domain": "nbg1"}},
                "vars": {
                    **cloud,
                    "kubenode_image_name": IMAGE,
                    "kubenode_user_data": self.bootstrap_data("trixie"),
                },
            },
            "metal": {
                "hosts": {METAL: {"failure_domain": "fsn1", "kubenode_server_number": SERVERS[0]["number"]}},
                "vars": {
                    **BOOKWORM,
                    "kubenode_first_contact": "reset",
                    "kubenode_root_device_hints": {"serial": DISK["serial"]},
                    "kubenode_image": {"name": "Debian-1200-bookworm-amd64-base.tar.zst"},
                    "kubenode_partitions": [{"mount": "/", "filesystem": "ext4", "size": "all"}],
                    "kubenode_bootstrap_data": self.bootstrap_data("bookworm"),
                },
            },
        }
        inventory: dict[str, Any] = {"all": {"vars": {**self.ssh_settings(), **settings}, "children": groups}}
        self.inventory.touch(mode=0o600)
        self.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")


def site(arguments: Sequence[str]) -> int:
    """Two cloud machines and a dedicated server on the lab, from nothing to Ready nodes by one playbook in two batches.

    Exit code 0 when all three are Ready nodes and the second run changed nothing.
    """
    chosen = parser("site", site.__doc__, profile=False).parse_args(arguments)
    say("starting the lab and its control plane (the first time it builds images, and Kubernetes of Go modules)")
    folder = CHECKOUT / "build" / "demo-site"
    with SiteTestbed(folder, "demo-site", lab_options=["--kind", "nspawn"], keep=chosen.keep) as testbed:
        say("the node image of one of them: a machine is written, gets base, and its snapshot is the image")
        if testbed.make_image():
            return done(testbed, 1)
        testbed.write_fleet()

        def proof() -> bool:
            say("what the control plane says: kubectl get nodes")
            show(testbed.kubectl("get", "nodes", "-o", "wide"))
            lines = testbed.kubectl("get", "nodes", "--no-headers").splitlines()
            ready = {line.split()[0] for line in lines if line.split()[1] == "Ready"}
            return ready == {WRITTEN, NAMED, METAL}

        code = twice(testbed, proof)
    return done(testbed, code)
