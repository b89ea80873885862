# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node images on the lab: a prebaked snapshot, a node of it without downloads, its tarball on a dedicated server."""

import argparse
import json
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from dev.demos import say, show
from dev.demos.node import of_the_mirror
from dev.testbed import CHECKOUT, KEY_NAME, Testbed
from lab import images, mirror
from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL
from lab.running import RunningLab

BASE = "debian-12"
IMAGE = f"{BASE}-kubernetes-{KUBERNETES}"
TARBALL = f"Debian-1200-bookworm-amd64-{BASE}-kubernetes-{KUBERNETES}.tar.zst"
CLOUD, METAL, NUMBER = "cloud-1", "metal-1", 4711
#: A container cannot grow its disk.
CLOUD_CONFIG: dict[str, Any] = {"growpart": {"mode": "off"}}


class NodeImageTestbed(Testbed):
    """A testbed whose lab lives in this process, so that machines can be cut off; ``seconds``: what each step took."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "demo-image")
        self.running = RunningLab(kind="nspawn", name=self.name)
        self.seconds: list[tuple[str, float]] = []

    def _up(self) -> dict[str, Any]:
        self.running.open()
        lab = self.running
        return {"endpoint": lab.endpoint, "images_url": lab.images_url, "mirror_url": lab.mirror_url}

    def _down(self) -> None:
        self.running.close()

    def _credentials(self) -> dict[str, str]:
        return self.running.env

    @property
    def token(self) -> str:
        """The lab's own token."""
        return self.running.token

    @property
    def tarball(self) -> Path:
        """The file that node_image_tarball makes."""
        return self.folder / "kubenode" / "tarballs" / TARBALL

    def building(self) -> dict[str, Any]:
        """What the image is made of: a base from packages, base from the lab's mirror, one container image."""
        packages = mirror.cloud_config(self.lab["mirror_url"], "bookworm")
        bootstrap = {**CLOUD_CONFIG, **packages}
        command = "image-url-command-rootfs-tar"
        return {
            "kubenode_image_matrix": {
                "kubernetes": [KUBERNETES],
                "base": [{"name": BASE, "image_url": self.file_url(images.TARBALL), "command": command}],
            },
            "kubenode_bootstrap_data": _cloud_config(bootstrap),
            "kubenode_tarball_level": 3,
            "kubenode_tarball_name": "{system}-{architecture}-{name}",
            **of_the_mirror(self.lab["mirror_url"], "kubelet", runc="1.1.5"),
        }

    def play(self, what: str, *playbooks: str, hosts: tuple[str, ...] = (), **variables: Any) -> str:
        """Run playbooks; returns what was printed. Ends the demo when they fail."""
        settings = {**self.ssh_settings(), "kubenode_ssh_keys": [KEY_NAME], "kubenode_location": "fsn1"}
        data = {"hosts": dict.fromkeys(hosts), "vars": {**settings, **variables}}
        self.inventory.touch(mode=0o600)
        self.inventory.write_text(yaml.safe_dump({"all": data}, sort_keys=False))
        command = ["ansible-playbook", "-i", str(self.inventory), *playbooks]
        say(shlex.join(command))
        log = self.folder / f"{len(self.seconds) + 1}-{playbooks[-1].rpartition('.')[2]}.log"
        environment = {**self.environment, "ANSIBLE_NOCOLOR": "true"}
        del environment["ANSIBLE_CALLBACKS_ENABLED"]  # no report; an empty list would hold an empty name
        began = time.monotonic()
        with log.open("w") as output:
            done = subprocess.run(command, env=environment, cwd=self.folder, check=False, stdin=subprocess.DEVNULL,
                                  stdout=output, stderr=subprocess.STDOUT)  # fmt: skip
        self.seconds.append((what, time.monotonic() - began))
        printed = log.read_text()
        if done.returncode:
            show("\n".join(printed.splitlines()[-60:]))
            raise SystemExit(f"demo: the run failed; all of it: {log}")
        show("\n".join(re.findall(r'^ +"((?:image|file|debian|Debian)\S* .*)",?$', printed, re.M)))
        return printed


def _cloud_config(data: dict[str, Any]) -> str:
    return "#cloud-config\n" + yaml.safe_dump(data)


def make_files(testbed: NodeImageTestbed) -> None:
    """The snapshot, then the tarball of it."""
    building = testbed.building()
    say("a prebaked snapshot: a root file system on a new machine, base with prebake, checks, clean-up")
    testbed.play("snapshot", "kubenode.provision.node_image_snapshot", **building)
    say("a tarball of the same: packed in the rescue of a machine whose disk is the snapshot")
    testbed.play("tarball", "kubenode.provision.node_image_tarball", **building)


def join_in_the_cloud(testbed: NodeImageTestbed) -> None:
    """A machine of the snapshot joins with nothing but the control plane in reach."""
    cluster = testbed.running.cluster()
    playbook = "kubenode.provision.hcloud_image_name"
    image = {"kubenode_image_name": IMAGE, "kubenode_server_type": "cx23"}
    image["kubenode_user_data"] = _cloud_config({**CLOUD_CONFIG, "bootcmd": [["sh", "-c", SHARED_KERNEL]]})
    say(f"{CLOUD} is created from the snapshot, no rescue and no image command")
    testbed.play("machine of the snapshot", playbook, hosts=(CLOUD,), **image)
    testbed.running.isolate(CLOUD, [testbed.running.controller])
    host = testbed.lab["mirror_url"].split("/")[2]
    refused = f"curl -m 3 -s -o /dev/null http://{host}/ && echo 'the mirror answers' || echo 'no way to the mirror'"
    show(testbed.ssh(CLOUD, refused))
    say("every address but the control plane's is cut off now; it joins")
    join = {
        "join_api_server": cluster.endpoint,
        "join_ca_file": str(cluster.ca_file),
        "join_token": cluster.token(),
        "join_kubelet_config": SHARED_GROUPS,
    }
    testbed.play("join", playbook, "kubenode.provision.node_join", hosts=(CLOUD,), **image, **join)
    if CLOUD not in cluster.nodes():
        raise SystemExit(f"demo: {CLOUD} is no node of the cluster")
    say(f"the control plane's nodes: {', '.join(sorted(cluster.nodes()))}")


def install_on_metal(testbed: NodeImageTestbed) -> None:
    """A dedicated server gets the tarball by installimage and boots it."""
    testbed.running.dedicated(number=NUMBER, disks=[{"kind": "sata", "size": "6G"}], memory_mib=2048)
    say(f"{METAL}, a dedicated server, gets the tarball by installimage")
    digest = Path(f"{testbed.tarball}.sha256").read_text().split()[0]
    testbed.play(
        "installimage",
        "kubenode.provision.robot_installimage",
        hosts=(METAL,),
        kubenode_server_number=NUMBER,
        kubenode_first_contact="reset",
        kubenode_root_device_hints={"smallest": True},
        kubenode_image={"file": str(testbed.tarball), "digest": f"sha256:{digest}"},
        kubenode_partitions=[{"mount": "/", "filesystem": "ext4", "size": "all"}],
        kubenode_bootstrap_data=_cloud_config({"runcmd": ["hostname > /etc/kubenode-proof"]}),
    )
    machine = testbed.machine(METAL)
    say(f"it booted {' and then '.join(boot['source'] for boot in machine['boots'][-2:])}; proof from inside:")
    script = (
        "hostname; cat /etc/kubenode-proof; systemctl is-enabled kubelet; systemctl is-active containerd; "
        "ctr -n k8s.io images ls -q | grep pause; cat /etc/kubenode/base.json"
    )
    lines = testbed.ssh(METAL, script).splitlines()
    show("\n".join(lines[:5]))
    base = json.loads("\n".join(lines[5:]))
    if lines[:2] != [METAL, METAL] or base["kubernetes"]["version"] != KUBERNETES or not base["prebaked"]:
        raise SystemExit(f"demo: {METAL} does not run the image")


def make_again(testbed: NodeImageTestbed) -> bool:
    """The second run makes nothing; whether that is so."""
    say("the same again: nothing may change")
    before = testbed.tarball.stat().st_mtime_ns
    printed = testbed.play("second run", "kubenode.provision.node_image_tarball", **testbed.building())
    changed = sum(int(count) for count in re.findall(r"changed=([0-9]+)", printed))
    if changed or testbed.tarball.stat().st_mtime_ns != before:
        say("the second run changed something")
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when both machines run the image and the second run made nothing."""
    argparse.ArgumentParser(prog="dev/demo node-images", description=__doc__).parse_args(arguments)
    say("starting the lab and its control plane (the first time it builds images, and Kubernetes of its Go modules)")
    folder = CHECKOUT / "build" / "demo-image"
    with NodeImageTestbed(folder) as testbed:
        make_files(testbed)
        join_in_the_cloud(testbed)
        install_on_metal(testbed)
        if not make_again(testbed):
            return 1
    say("where the time went, in seconds")
    width = max(len(what) for what, _seconds in testbed.seconds)
    for what, seconds in [*testbed.seconds, ("all", sum(seconds for _what, seconds in testbed.seconds))]:
        print(f"  {what.ljust(width)}  {seconds:7.1f}", flush=True)
    say(f"done; logs and the tarball: {folder}")
    return 0
