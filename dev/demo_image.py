# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node images on the lab: a prebaked snapshot, a node of it without downloads, its tarball on a dedicated server."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import hcloud
import yaml

from dev.stage import CHECKOUT, KEY_NAME
from lab import cache, images, mirror
from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL
from lab.running import RunningLab

PAUSE = "3.10.2"
BASE = "debian-12"
IMAGE = f"{BASE}-kubernetes-{KUBERNETES}"
TARBALL = f"Debian-1200-bookworm-amd64-{BASE}-kubernetes-{KUBERNETES}.tar.zst"
CLOUD, METAL, NUMBER = "cloud-1", "metal-1", 4711
#: A container cannot grow its disk.
CLOUD_CONFIG: dict[str, Any] = {"growpart": {"mode": "off"}}


def say(line: str) -> None:
    """One line of the demo's own, apart from what the tools print."""
    print(f"demo: {line}", flush=True)


def show(text: str) -> None:
    """What a tool said, indented."""
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


class Workshop:
    """An operator's folder beside a lab: SSH key, inventory, logs; ``seconds`` is what each step took."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.seconds: list[tuple[str, float]] = []
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.key = folder / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", KEY_NAME, "-f", self.key], check=True)
        client = hcloud.Client(token=lab.token, api_endpoint=lab.endpoint)
        client.ssh_keys.create(name=KEY_NAME, public_key=self.key.with_suffix(".pub").read_text())

    @property
    def tarball(self) -> Path:
        """The file that node_image_tarball makes."""
        return self.folder / "kubenode" / "tarballs" / TARBALL

    def common(self) -> dict[str, Any]:
        """Variables of every run."""
        return {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_python_interpreter": "/usr/bin/python3",
            "kubenode_dir": str(self.folder / "kubenode"),
            "kubenode_ssh_keys": [KEY_NAME],
            "kubenode_location": "fsn1",
        }

    def image_url(self, name: str) -> str:
        """An image of the lab with its digest."""
        url = f"{self.lab.images_url}/{name}"
        with urllib.request.urlopen(f"{url}.sha256", timeout=600) as answer:
            return f"{url}#sha256={answer.read().decode().split()[0]}"

    def building(self) -> dict[str, Any]:
        """What the image is made of: a base from packages, base from the lab's mirror, one container image."""
        packages = mirror.cloud_config(self.lab.mirror_url, "bookworm")
        bootstrap = {**CLOUD_CONFIG, **packages}
        archive = mirror.find(f"images/pause-{PAUSE}.tar")
        if archive is None:
            raise SystemExit(f"the lab's mirror has no pause {PAUSE}")
        pause = {"url": f"{self.lab.mirror_url}/images/{archive.name}", "sha256": cache.sha256(archive)}
        command = "image-url-command-rootfs-tar"
        return {
            "kubenode_image_matrix": {
                "kubernetes": [KUBERNETES],
                "base": [{"name": BASE, "image_url": self.image_url(images.TARBALL), "command": command}],
            },
            "kubenode_bootstrap_data": _cloud_config(bootstrap),
            "kubenode_tarball_level": 3,
            "kubenode_tarball_name": "{system}-{architecture}-{name}",
            "base_mirror": self.lab.mirror_url,
            "base_checksums": mirror.checksums(
                "containerd", "runc", "cni-plugins", "crictl", "kubelet", real=(KUBERNETES,)
            ),
            "base_containerd_version": "2.1.9",
            "base_runc_version": "1.1.5",
            "base_cni_plugins_version": "1.9.1",
            "base_version_check": "warn",  # Debian's containerd is older than what Kubernetes asks for
            "base_image_archives": [pause],
        }

    def play(self, what: str, *playbooks: str, hosts: tuple[str, ...] = (), **variables: Any) -> str:
        """Run playbooks; returns what was printed. Ends the demo when they fail."""
        inventory = self.folder / "inventory.yml"
        data = {"hosts": dict.fromkeys(hosts), "vars": {**self.common(), **variables}}
        inventory.touch(mode=0o600)
        inventory.write_text(yaml.safe_dump({"all": data}, sort_keys=False))
        command = ["ansible-playbook", "-i", str(inventory), *playbooks]
        say(shlex.join(command))
        log = self.folder / f"{len(self.seconds) + 1}-{playbooks[-1].rpartition('.')[2]}.log"
        environment = {**os.environ, **self.lab.env, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_PIPELINING": "true"}
        began = time.monotonic()
        with log.open("w") as output:
            done = subprocess.run(command, env=environment, cwd=self.folder, check=False, stdin=subprocess.DEVNULL,
                                  stdout=output, stderr=subprocess.STDOUT)  # fmt: skip
        self.seconds.append((what, time.monotonic() - began))
        told = log.read_text()
        if done.returncode:
            show("\n".join(told.splitlines()[-60:]))
            raise SystemExit(f"demo: the run failed; all of it: {log}")
        show("\n".join(re.findall(r'^ +"((?:image|file|debian|Debian)\S* .*)",?$', told, re.M)))
        return told

    def ssh(self, name: str, address: str, script: str) -> str:
        """What a script prints on a machine, which must show the host key that the run proved."""
        known_hosts = self.folder / "kubenode" / "known_hosts" / f"{name}.os"
        options = ["-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={known_hosts}", "-o", f"HostKeyAlias={name}.os"]
        words = ["ssh", "-i", str(self.key), *options, f"root@{address}", script]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout

    def machine(self, name: str) -> dict[str, Any]:
        """The lab's word on a machine."""
        (found,) = [one for one in self.lab.control("GET", "/machines")["machines"] if one["name"] == name]
        return dict(found)


def _cloud_config(data: dict[str, Any]) -> str:
    return "#cloud-config\n" + yaml.safe_dump(data)


def make_files(shop: Workshop) -> None:
    """The snapshot, then the tarball of it."""
    building = shop.building()
    say("a prebaked snapshot: a root file system on a new machine, base with prebake, checks, clean-up")
    shop.play("snapshot", "kubenode.provision.node_image_snapshot", **building)
    say("a tarball of the same: packed in the rescue of a machine whose disk is the snapshot")
    shop.play("tarball", "kubenode.provision.node_image_tarball", **building)


def join_in_the_cloud(shop: Workshop) -> None:
    """A machine of the snapshot joins with nothing but the control plane in reach."""
    cluster = shop.lab.cluster()
    playbook = "kubenode.provision.hcloud_image_name"
    image = {"kubenode_image_name": IMAGE, "kubenode_server_type": "cx23"}
    image["kubenode_user_data"] = _cloud_config({**CLOUD_CONFIG, "bootcmd": [["sh", "-c", SHARED_KERNEL]]})
    say(f"{CLOUD} is created from the snapshot, no rescue and no image command")
    shop.play("machine of the snapshot", playbook, hosts=(CLOUD,), **image)
    shop.lab.isolate(CLOUD, [shop.lab.controller])
    host = shop.lab.mirror_url.split("/")[2]
    refused = f"curl -m 3 -s -o /dev/null http://{host}/ && echo 'the mirror answers' || echo 'no way to the mirror'"
    show(shop.ssh(CLOUD, shop.machine(CLOUD)["address"], refused))
    say("every address but the control plane's is cut off now; it joins")
    join = {
        "join_api_server": cluster.endpoint,
        "join_ca_file": str(cluster.ca_file),
        "join_token": cluster.token(),
        "join_kubelet_config": SHARED_GROUPS,
    }
    shop.play("join", playbook, "kubenode.provision.node_join", hosts=(CLOUD,), **image, **join)
    if CLOUD not in cluster.nodes():
        raise SystemExit(f"demo: {CLOUD} is no node of the cluster")
    say(f"the control plane's nodes: {', '.join(sorted(cluster.nodes()))}")


def install_on_metal(shop: Workshop) -> None:
    """A dedicated server gets the tarball by installimage and boots it."""
    shop.lab.dedicated(number=NUMBER, disks=[{"kind": "sata", "size": "6G"}], memory_mib=2048)
    say(f"{METAL}, a dedicated server, gets the tarball by installimage")
    digest = Path(f"{shop.tarball}.sha256").read_text().split()[0]
    shop.play(
        "installimage",
        "kubenode.provision.robot_installimage",
        hosts=(METAL,),
        kubenode_server_number=NUMBER,
        kubenode_first_contact="reset",
        kubenode_root_device_hints={"smallest": True},
        kubenode_image={"file": str(shop.tarball), "digest": f"sha256:{digest}"},
        kubenode_partitions=[{"mount": "/", "filesystem": "ext4", "size": "all"}],
        kubenode_bootstrap_data=_cloud_config({"runcmd": ["hostname > /etc/kubenode-proof"]}),
    )
    machine = shop.machine(METAL)
    say(f"it booted {' and then '.join(boot['source'] for boot in machine['boots'][-2:])}; proof from inside:")
    script = (
        "hostname; cat /etc/kubenode-proof; systemctl is-enabled kubelet; systemctl is-active containerd; "
        "ctr -n k8s.io images ls -q | grep pause; cat /etc/kubenode/base.json"
    )
    lines = shop.ssh(METAL, machine["address"], script).splitlines()
    show("\n".join(lines[:5]))
    base = json.loads("\n".join(lines[5:]))
    if lines[:2] != [METAL, METAL] or base["kubernetes"]["version"] != KUBERNETES or not base["prebaked"]:
        raise SystemExit(f"demo: {METAL} does not run the image")


def make_again(shop: Workshop) -> bool:
    """The second run makes nothing; whether that is so."""
    say("the same again: nothing may change")
    before = shop.tarball.stat().st_mtime_ns
    told = shop.play("second run", "kubenode.provision.node_image_tarball", **shop.building())
    changed = sum(int(count) for count in re.findall(r"changed=([0-9]+)", told))
    if changed or shop.tarball.stat().st_mtime_ns != before:
        say("the second run changed something")
        return False
    return True


def main() -> int:
    """Exit code 0 when both machines run the image and the second run made nothing."""
    argparse.ArgumentParser(prog="dev/demo-image", description=__doc__).parse_args()
    say("starting the lab and its control plane (the first time it builds images, and Kubernetes of its Go modules)")
    folder = CHECKOUT / "build" / "demo-image"
    with RunningLab(kind="nspawn", name="demo-image") as lab:
        shop = Workshop(lab, folder)
        make_files(shop)
        join_in_the_cloud(shop)
        install_on_metal(shop)
        if not make_again(shop):
            return 1
    say("where the time went, in seconds")
    width = max(len(what) for what, _seconds in shop.seconds)
    for what, seconds in [*shop.seconds, ("all", sum(seconds for _what, seconds in shop.seconds))]:
        print(f"  {what.ljust(width)}  {seconds:7.1f}", flush=True)
    say(f"done; logs and the tarball: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
