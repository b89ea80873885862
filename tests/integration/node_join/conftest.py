# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that are ready to join a real control plane, and playbook runs of the role join on them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from lab.cluster import KUBERNETES
from lab.cluster.running_cluster import RunningCluster
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL, Node
from lab.running import RunningLab
from tests.integration.controller import Controller
from tests.integration.mirrored import real
from tests.integration.runs import Run

PLAYS = Path(__file__).parent / "plays"
_CLEAN = """
systemctl stop kubelet
rm -rf /etc/kubernetes /var/lib/kubelet /etc/cni /etc/kubenode/join.json /run/kubenode
journalctl --rotate -q && journalctl --vacuum-time=1s -q
systemctl reset-failed kubelet
true
"""


class Joined(Run):
    """What came of one run of the role."""

    def __init__(self, run: Run, report: Path) -> None:
        super().__init__(run.rc, run.output)
        self.report: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}

    @property
    def code(self) -> str:
        """The failure code, empty when the machine joined."""
        return self.report.get("failure", {}).get("code", "")

    @property
    def said(self) -> str:
        """The message of the failure."""
        return self.report.get("failure", {}).get("msg", "")

    def fails_as(self, code: str, *words: str) -> Self:
        """Itself, since it had to fail with this code and these words."""
        assert self.code == code, self.output
        for word in words:
            assert word in self.said
        return self

    @property
    def applied(self) -> list[str]:
        """Ids of the settings that changed."""
        return [step["id"] for step in self.report.get("applied", {}).get("steps", []) if step["changed"]]


class Joiner(Controller):
    """One machine with a kubelet, and the role join on it."""

    #: fields of KubeletConfiguration that every join there is given
    fields: Mapping[str, Any] = SHARED_GROUPS

    def __init__(self, lab: RunningLab, node: Node, cluster: RunningCluster, folder: Path) -> None:
        super().__init__(lab, folder)
        self.node, self.cluster = node, cluster

    def run(self, *options: str, **variables: Any) -> Joined:
        """Run the role; ``variables`` without ``join_``, over the usual ones; None leaves one out."""
        given: dict[str, Any] = {
            "api_server": self.cluster.endpoint,
            "ca_cert": self.cluster.ca_pem,
            "timeout": 200,
            **variables,
            "kubelet_config": {**self.fields, **variables.get("kubelet_config", {})},
        }
        return self._join("join.yml", {f"join_{name}": value for name, value in given.items()}, *options)

    def checks(self, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The results of node_join_check with the options of each case, over the usual ones."""
        usual = {
            "api_server": self.cluster.endpoint,
            "ca_cert": self.cluster.ca_pem,
            "node_name": self.node.name,
            "timeout": 120,
        }
        options = [{name: value for name, value in {**usual, **case}.items() if value is not None} for case in cases]
        done = self._join("check.yml", {"cases": options}).ok()
        return done.report["results"]

    def _join(self, play: str, variables: dict[str, Any], *options: str) -> Joined:
        report = self.folder / f"{self.node.name}.json"
        report.unlink(missing_ok=True)
        given = {name: value for name, value in variables.items() if value is not None}
        self.add_nodes(self.node, **given, report=str(report))
        return Joined(self.play(str(PLAYS / play), *options), report)

    def clean(self) -> None:
        """Leave the machine as base left it, and the cluster without its Node."""
        self.node.ssh(_CLEAN)
        self.cluster.kubectl("delete", "node", self.node.name, "--ignore-not-found")

    def files(self) -> set[str]:
        """The files of a join that are on the machine."""
        return set(
            self.node.run(
                "find /etc/kubernetes /var/lib/kubelet /etc/kubenode/join.json /etc/cni /run/kubenode/*.yaml "
                "-type f -o -type l 2>/dev/null || true"
            ).split()
        )

    def kubelet(self) -> str:
        """active, inactive, failed."""
        return self.node.ssh("systemctl is-active kubelet").stdout.strip()

    def pid(self) -> str:
        """The process of the kubelet."""
        return self.node.run("systemctl show kubelet -p MainPID --value")


@pytest.fixture(scope="session")
def cluster(lab_nspawn: RunningLab) -> RunningCluster:
    """The control plane of the lab."""
    return lab_nspawn.cluster()


@pytest.fixture(scope="session")
def machine(lab_nspawn: RunningLab, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Joiner:
    """One machine that base has prepared, with the real kubelet of the control plane's release."""
    joiner = Joiner(lab_nspawn, lab_nspawn.node("join-1"), cluster, tmp_path_factory.mktemp("join"))
    joiner.node.run(SHARED_KERNEL)
    joiner.add_nodes(joiner.node)
    joiner.play("kubenode.provision.node_base", **real(lab_nspawn, KUBERNETES)).ok()
    return joiner


@pytest.fixture
def joined(machine: Joiner) -> Joiner:
    """The machine as a node of the cluster; one that an earlier test left so is taken as it is."""
    valid = machine.node.ssh("test -e /etc/kubenode/join.json && systemctl is-active -q kubelet").returncode == 0
    if not valid or machine.node.name not in machine.cluster.nodes():
        machine.clean()
        machine.run(token=machine.cluster.token()).ok()
    return machine


@pytest.fixture
def joiner(machine: Joiner) -> Iterator[Joiner]:
    """The machine, before any join."""
    machine.clean()
    yield machine
    machine.cluster.approve(True)
    machine.cluster.bootstrap(True)
