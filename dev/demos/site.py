# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two cloud machines and a dedicated server on the lab, from nothing to Ready nodes by one playbook in two batches."""

import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

import yaml

from dev.demos import done, parser, say, show, twice
from dev.demos.node import NodeTestbed
from dev.testbed import CHECKOUT, KEY_NAME
from lab import mirror
from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL

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
        node = self.node_settings()
        base = {"name": SYSTEM, "image_url": node["kubenode_image_url"], "command": "image-url-command-raw-disk"}
        variables = {
            **self.ssh_settings(),
            **{name: node[name] for name in node if name.startswith("base_") and name != "base_kubernetes_version"},
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
        node = {**self.node_settings(), "join_kubelet_config": SHARED_GROUPS, "kubenode_serial": "failure_domain"}
        image_url = node.pop("kubenode_image_url")
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
        inventory: dict[str, Any] = {"all": {"vars": {**self.ssh_settings(), **node}, "children": groups}}
        self.inventory.touch(mode=0o600)
        self.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when all three are Ready nodes and the second run changed nothing."""
    chosen = parser("site", __doc__, profile=False).parse_args(arguments)
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
