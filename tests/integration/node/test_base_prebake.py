# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine becomes an image, and a machine made from it needs nothing more, with every network but ours cut off."""

import json
from dataclasses import dataclass

import pytest

from lab import cache, mirror
from lab.nodes import Node
from tests.integration.controller import Controller
from tests.integration.mirrored import mirrored
from tests.integration.runs import Run

pytestmark = [pytest.mark.root, pytest.mark.nspawn, pytest.mark.mirror, pytest.mark.long]

BASE = "kubenode.provision.node_base"
PAUSE = "registry.k8s.io/pause:3.10.2"
IDENTITY = "cat /etc/machine-id; cat /etc/ssh/ssh_host_ed25519_key.pub; cat /var/lib/cloud/data/instance-id"


@dataclass
class Copies:
    """A machine that was made an image, the run that did, and a machine made from it."""

    prebake: Run
    identity: list[str]
    traces: str
    second: Node


@pytest.fixture(scope="module")
def copies(controller: Controller, lab_nspawn) -> Copies:
    first = lab_nspawn.node("prebake-1")
    controller.add_nodes(first)
    # a prebaked machine that ever held a token or a history would hand it on
    first.run("echo 'export TOKEN=hunter2' > /root/.bash_history; mkdir -p /etc/kubenode; echo hunter2 > /tmp/left")
    identity = first.run(IDENTITY).splitlines()
    archive = mirror.find("images/pause-3.10.2.tar")
    play = controller.play(
        BASE,
        "--diff",
        hosts=["prebake-1"],
        base_prebake=True,
        base_image_archives=[
            {"url": lab_nspawn.mirror_url + "/images/pause-3.10.2.tar", "sha256": cache.sha256(archive)}
        ],
        **mirrored(lab_nspawn),
    ).ok()
    lab_nspawn.power_off("prebake-1")
    image = lab_nspawn.disk_image("prebake-1")
    lab_nspawn.remove("prebake-1")
    second = lab_nspawn.node("prebake-2", image)
    traces = "/root /tmp /var/lib/cloud /var/log"
    found = second.run(f"grep -rslE 'hunter2|{identity[0]}' {traces} /etc /var/lib/dbus || true")
    lab_nspawn.isolate("prebake-2", [lab_nspawn.controller])
    controller.add_nodes(second)
    return Copies(play, identity, found, second)


def test_the_copy_has_an_identity_of_its_own(copies: Copies):
    own = copies.second.run(IDENTITY).splitlines()
    assert all(own)
    assert not set(own) & set(copies.identity)
    assert copies.traces == ""
    assert copies.second.run("hostname") == "prebake-2"


def test_the_copy_holds_all_it_needs_and_waits(copies: Copies):
    run = copies.second.run
    assert run("systemctl is-enabled kubelet") == "enabled"
    assert run("systemctl is-active containerd kubenode-runtime-probe.timer").split() == ["active"] * 2
    assert run("systemctl is-active kubelet || true") == "inactive"
    (line,) = [line for line in run("ctr -n k8s.io images ls").splitlines() if line.startswith(PAUSE)]
    assert "io.cri-containerd.pinned=pinned" in line
    assert json.loads(run("cat /etc/kubenode/base.json"))["prebaked"] is True
    assert run("systemctl list-units --failed --no-legend") == ""


def test_base_on_the_copy_changes_nothing_and_needs_no_network(copies: Copies, controller: Controller, lab_nspawn):
    mirror_host = lab_nspawn.mirror_url.split("/")[2]
    assert copies.second.ssh(f"curl -m 3 -s http://{mirror_host}/ || exit 9").returncode == 9
    play = controller.play(BASE, "--diff", hosts=["prebake-2"], **mirrored(lab_nspawn)).ok()
    assert play.changed("prebake-2") == []
    assert len(play.remote("prebake-2")) == 2
    # also when the images are given again, whose archive cannot be fetched
    archive = {"url": lab_nspawn.mirror_url + "/images/pause-3.10.2.tar"}
    archive["sha256"] = cache.sha256(mirror.find("images/pause-3.10.2.tar"))
    play = controller.play(
        BASE, hosts=["prebake-2"], base_images=[PAUSE], base_image_archives=[archive], **mirrored(lab_nspawn)
    ).ok()
    assert play.changed("prebake-2") == []


def test_a_node_of_a_cluster_is_refused_before_anything_changes(copies: Copies, controller: Controller, lab_nspawn):
    copies.second.run("mkdir -p /etc/kubernetes && touch /etc/kubernetes/kubelet.conf")
    play = controller.play(BASE, hosts=["prebake-2"], base_prebake=True, **mirrored(lab_nspawn))
    assert "belongs to a cluster (/etc/kubernetes/kubelet.conf" in play.error("prebake-2")
    assert play.changed("prebake-2") == []
    direct = [{"hosts": "all", "gather_facts": False, "tasks": [{"kubenode.provision.node_cleanup": {}}]}]
    play = controller.play(direct, hosts=["prebake-2"])
    assert "belongs to a cluster" in play.error("prebake-2")
    assert copies.second.run("cat /etc/machine-id") != ""
