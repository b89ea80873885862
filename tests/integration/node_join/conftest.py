# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that are ready to join a real control plane, and playbook runs of the role join on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.running import RunningCluster
from lab.kubelet import build
from lab.nodes import Node
from lab.running import RunningLab

VERSION = "1.36.4"
PLAYS = Path(__file__).parent / "plays"
# what the role base leaves, as far as a join looks at it
_UNIT = """[Unit]
ConditionPathExists=|/etc/kubernetes/kubelet.conf
ConditionPathExists=|/etc/kubernetes/bootstrap-kubelet.conf
StartLimitIntervalSec=0
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/kubernetes/kubelet.env
Environment=KUBELET_STANDIN_RETRY=0.5 KUBELET_STANDIN_SWAPS=/dev/null
ExecStart=/usr/local/bin/kubelet $KUBELET_ARGS $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""
_RUNTIME = """[Socket]
ListenStream=/run/containerd/containerd.sock
Accept=yes
[Install]
WantedBy=sockets.target
"""
_ANSWER = """[Service]
ExecStart=/bin/cat
StandardInput=socket
StandardOutput=socket
"""
_BASE = {
    "bin_dir": "/usr/local/bin",
    "kubernetes": {"version": VERSION, "minor": "1.36"},
    "runtime": {"name": "containerd", "version": "2.3.4", "socket": "/run/containerd/containerd.sock"},
}
_CLEAN = """
systemctl stop kubelet
rm -rf /etc/kubernetes /var/lib/kubelet /etc/cni /etc/kubenode/join.json /run/kubenode
journalctl --rotate -q && journalctl --vacuum-time=1s -q
systemctl reset-failed kubelet
true
"""


@dataclass
class Run:
    """What came of one run of the role."""

    rc: int
    output: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The failure code, empty when the machine joined."""
        return self.report.get("failure", {}).get("code", "")

    @property
    def said(self) -> str:
        """The message of the failure."""
        return self.report.get("failure", {}).get("msg", "")

    @property
    def changed(self) -> list[str]:
        """Ids of the settings that changed."""
        return [step["id"] for step in self.report.get("applied", {}).get("steps", []) if step["changed"]]


class Joiner:
    """One machine with a kubelet, and the role join on it."""

    def __init__(self, node: Node, cluster: RunningCluster, folder: Path) -> None:
        self.node, self.cluster, self.folder = node, cluster, folder

    def run(self, *options: str, **variables: Any) -> Run:
        """Run the role; ``variables`` without ``join_``, over the usual ones. The token is None for no token."""
        given: dict[str, Any] = {
            "api_server": self.cluster.endpoint,
            "ca_cert": self.cluster.ca_pem,
            "version_check": "warn",  # the lab's control plane is much older than the kubelet
            "timeout": 60,
            **variables,
        }
        report = self.folder / f"{self.node.name}.json"
        report.unlink(missing_ok=True)
        inventory = {
            "all": {
                "hosts": {
                    self.node.name: {
                        **self.node.inventory,
                        **{f"join_{name}": value for name, value in given.items() if value is not None},
                    }
                }
            }
        }
        (self.folder / "inventory.json").write_text(json.dumps(inventory))
        done = subprocess.run(
            ["ansible-playbook", "-i", "inventory.json", "-e", f"report={report}", PLAYS / "join.yml", *options],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=280,
        )
        (self.folder / "output").write_text(done.stdout)
        return Run(done.returncode, done.stdout, json.loads(report.read_text()) if report.exists() else {})

    def clean(self) -> None:
        """Leave the machine as base left it, and the cluster without its Node."""
        self.node.ssh(_CLEAN)
        self.cluster.kubectl("delete", "node", self.node.name, "--ignore-not-found")

    def files(self) -> set[str]:
        """The files of a join that are on the machine."""
        return set(
            self.node.run(
                "find /etc/kubernetes /var/lib/kubelet /etc/kubenode/join.json /etc/cni /run/kubenode "
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
    """One machine that base has prepared."""
    node = lab_nspawn.node("join-1")
    prepare(node, tmp_path_factory.mktemp("kubelet"))
    return Joiner(node, cluster, tmp_path_factory.mktemp("join"))


def prepare(node: Node, folder: Path) -> None:
    """Put there what base would have put there."""
    (folder / "kubelet").write_bytes(build(VERSION))
    (folder / "kubelet").chmod(0o755)
    texts = {
        "kubelet.service": _UNIT,
        "runtime.socket": _RUNTIME,
        "runtime@.service": _ANSWER,
        "base.json": json.dumps(_BASE),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    subprocess.run(
        [
            "scp",
            "-q",
            *node.ssh_options,
            *(folder / name for name in ("kubelet", *texts)),
            f"root@{node.address}:/root/",
        ],
        check=True,
    )
    node.run(
        "mv /root/kubelet /usr/local/bin/ && mv /root/*.service /root/*.socket /etc/systemd/system/ && "
        "mkdir -p /etc/kubenode && mv /root/base.json /etc/kubenode/ && "
        "systemctl daemon-reload && systemctl enable -q kubelet && systemctl start runtime.socket"
    )


@pytest.fixture
def joiner(machine: Joiner) -> Iterator[Joiner]:
    """The machine, before any join."""
    machine.clean()
    yield machine
    machine.cluster.approve(True)
    machine.cluster.bootstrap(True)
