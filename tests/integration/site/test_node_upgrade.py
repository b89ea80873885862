# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_upgrade: what it refuses, and real kubelets that become three minor versions newer, one after the other."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from dev.demos.node import NETWORK
from lab.cluster import KUBERNETES, OLDEST
from lab.cluster.running_cluster import RunningCluster
from lab.nodes import SHARED_KERNEL
from lab.running import RunningLab
from tests.integration.controller import Controller
from tests.integration.mirrored import real
from tests.integration.node_join.conftest import Joiner
from tests.integration.runs import Run

PLAYBOOK = "kubenode.provision.node_upgrade"
NAMES = ("upgrade-1", "upgrade-2")


def test_what_is_no_node_and_what_does_not_answer(tmp_path):
    """On the controller itself, which is no node: nothing is changed on it."""
    controller = Controller(None, tmp_path)
    controller.hosts = {"here-1": {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}}
    kept = {"kubenode_dir": str(tmp_path / "kubenode")}
    done = controller.play(PLAYBOOK, **kept).fails()
    done.says("here-1: it is no node yet; kubenode.provision.site or kubenode.provision.node makes")
    for variables, words in (
        ({"kubenode_serial": "0%"}, "kubenode_serial is '0%': give a number of machines"),
        ({"base_manage_kubelet": False}, "base_manage_kubelet is false, so base does not install the kubelet"),
        ({"kubenode_ready_timeout": "soon"}, "kubenode_ready_timeout"),
        ({"base_kubernetes_version": "1.x"}, "base_kubernetes_version"),
    ):
        refused = controller.play(PLAYBOOK, **kept, **variables).fails().says(words)
        assert "Drain its Node" not in refused.output
    controller.hosts = {"absent-1": {"ansible_host": "198.51.100.7", "ansible_timeout": 2}}
    controller.play(PLAYBOOK, "--check", **kept).ok().says("a run without --check would stop here")


class Scene(Controller):
    """Two nodes with the oldest kubelet that the control plane takes."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        super().__init__(lab, folder)
        self.plane: RunningCluster = lab.cluster()
        self.nodes = {name: lab.node(name) for name in NAMES}
        for name, node in self.nodes.items():
            node.run(SHARED_KERNEL)
            joiner = Joiner(lab, node, self.plane, folder / name)
            joiner.folder.mkdir()
            joiner.add_nodes(node)
            joiner.play("kubenode.provision.node_base", **real(lab, OLDEST)).ok()
            joiner.run(cni_config=NETWORK, ready=True, timeout=600, token=self.plane.token()).ok()
        self.add_nodes(*self.nodes.values())

    def run(self, *flags: str, version: str = KUBERNETES, **variables: Any) -> Run:
        given = {**real(self.lab, KUBERNETES), "kubenode_kubeconfig": str(self.plane.kubeconfig), **variables}
        given.update(base_kubernetes_version=version, kubenode_dir=str(self.folder / "kubenode"))
        return self.play(PLAYBOOK, *flags, **given)

    def base(self, **variables: Any) -> Run:
        return self.play("kubenode.provision.node_base", kubenode_dir=str(self.folder / "kubenode"), **variables)

    def versions(self) -> list[str]:
        """What the kubelets have reported."""
        nodes = self.plane.nodes()
        return [nodes[name]["status"]["nodeInfo"]["kubeletVersion"].lstrip("v") for name in NAMES]

    def cordoned(self) -> list[bool]:
        """Whether the Nodes take no pods."""
        return [bool(self.plane.nodes()[name]["spec"].get("unschedulable")) for name in NAMES]

    def pids(self) -> list[str]:
        return [node.run("systemctl show kubelet -p MainPID --value") for node in self.nodes.values()]


@pytest.fixture(scope="module")
def scene(lab_nspawn, tmp_path_factory):
    scene = Scene(lab_nspawn, tmp_path_factory.mktemp("upgrade"))
    yield scene
    scene.stop()


@pytest.mark.root
@pytest.mark.nspawn
@pytest.mark.mirror
@pytest.mark.cluster(OLDEST)
@pytest.mark.timeout(3600)
def test_one_after_the_other_and_on_from_where_it_stopped(scene):
    before = scene.pids()
    for version, words in (
        ("1.38.0", f"kubelet 1.38.0 is newer than the API server, which is v{KUBERNETES}; upgrade the control plane"),
        ("1.33.9", "kubelet 1.33.9 is more than 3 minor versions older than the API server"),
    ):
        refused = scene.run(version=version, base_checksums=with_release(scene.lab, version)).fails()
        refused.says(*(f"{name}: {words}" for name in NAMES))
    checked = scene.run("--check", "--diff").ok()
    assert checked.output.count(f"would be upgraded: kubelet {OLDEST} → {KUBERNETES}") == 2
    assert (scene.versions(), scene.cordoned(), scene.pids()) == ([OLDEST, OLDEST], [False, False], before)

    # what cannot be fetched is seen before the pods of a node have to go
    scene.run(base_mirror=scene.lab.mirror_url + "/nothing").fails().says("cannot be fetched: HTTP 404")
    assert (scene.versions(), scene.cordoned(), scene.pids()) == ([OLDEST, OLDEST], [False, False], before)

    # what fails later leaves a Node without pods, and says so
    left = scene.run(base_image_archives=[{"url": scene.lab.mirror_url + "/nothing.tar", "sha256": "0" * 64}]).fails()
    left.says(
        f"it stays cordoned until a run of node_upgrade ends well for it. To give that up: kubectl uncordon {NAMES[0]}"
    )
    assert scene.cordoned() == [True, False]
    scene.plane.kubectl("uncordon", NAMES[0])

    # a pod that nothing would make again keeps the second node from being drained; a person has cordoned the first
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": {
        "nodeName": NAMES[1], "containers": [{"name": "main", "image": "example.com/none", "imagePullPolicy": "Never"}],
    }}  # fmt: skip
    scene.plane.kubectl("create", "-f", "-", text=json.dumps(pod))
    scene.plane.kubectl("cordon", NAMES[0])
    stopped = scene.run().fails().says("default/bare: no controller would make it again")
    assert (scene.versions(), scene.cordoned()) == ([KUBERNETES, OLDEST], [True, False])
    assert "it stays cordoned, as it was before" in stopped.output
    assert scene.pids()[1] == before[1]

    first = scene.pids()[0]
    scene.plane.kubectl("delete", "pod", "bare", "--force", "--grace-period", "0")
    scene.run().ok().says(f"nothing to do: kubelet {KUBERNETES}")
    assert (scene.versions(), scene.cordoned()) == ([KUBERNETES, KUBERNETES], [True, False])
    assert scene.pids()[0] == first

    # an earlier run was cut off before it uncordoned the node
    manager = "--field-manager", "kubenode.provision/node_upgrade"
    noted = "kubenode.provision/cordoned-by=kubenode.provision/node_upgrade"
    scene.plane.kubectl("annotate", "node", NAMES[1], noted, *manager)
    scene.plane.kubectl("patch", "node", NAMES[1], "-p", '{"spec": {"unschedulable": true}}', *manager)
    again = scene.run().ok()
    assert again.output.count(f"nothing to do: kubelet {KUBERNETES}") == 2
    assert scene.cordoned() == [True, False]
    back = scene.run(version=OLDEST, base_checksums=real(scene.lab, OLDEST)["base_checksums"])
    back.says("going back to an older minor version is no upgrade")
    assert scene.versions() == [KUBERNETES, KUBERNETES]
    refuses_what_an_operator_did(scene)


def refuses_what_an_operator_did(scene):
    """The inventory still has the version before; a newer runc was put there, and the health check was masked."""
    pids, other = scene.pids(), scene.nodes[NAMES[1]]
    old = scene.base(**real(scene.lab, OLDEST)).fails()
    old.says(f"kubelet {KUBERNETES} is on this node, and base_kubernetes_version is {OLDEST}: a node does not go back")
    timer, runc = "kubenode-runtime-probe.timer", "/usr/local/bin/runc"
    other.run(f"systemctl stop {timer}; rm /etc/systemd/system/{timer}; systemctl mask {timer}")
    newer = "#!/bin/sh\necho runc version 9.9.9\n"
    other.run(f"cp {runc} /root/runc; printf %s {shlex.quote(newer)} >{runc}.new; chmod +x {runc}.new")
    other.run(f"mv {runc}.new {runc}")
    found = scene.base(**real(scene.lab, KUBERNETES)).fails()
    found.says("runc 9.9.9 is on this node, and base_runc_version is ", f"{timer} is masked on this node: its operator")
    assert "9.9.9" in other.run("runc --version")
    assert scene.pids() == pids
    other.run(f"mv /root/runc {runc}; systemctl unmask {timer}")
    scene.base(**real(scene.lab, KUBERNETES)).ok()
    assert other.run(f"systemctl is-active {timer}").strip() == "active"


def with_release(lab: Any, version: str) -> dict[str, Any]:
    """The sums of what base downloads, and one of a kubelet that is nowhere."""
    sums = real(lab, KUBERNETES)["base_checksums"]
    return {**sums, "kubelet": {**sums["kubelet"], version: {"amd64": "0" * 64}}}
