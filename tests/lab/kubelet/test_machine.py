# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in as a service of a lab machine: joined, hung and brought back by systemd's watchdog."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from lab.kubelet import build
from lab.nodes import Node
from lab.running import RunningLab
from tests.lab.kubelet.process import CONFLIST, GROUP_VERSION, KIND, kubeconfig
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.nspawn, pytest.mark.cluster]

_RUNTIME = b"""#!/usr/bin/python3
import signal, socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("/run/runtime.sock")
listener.listen()
signal.pause()
"""
_RUNTIME_UNIT = """
[Service]
ExecStart=/usr/local/bin/runtime
"""
_KUBELET = """
[Unit]
StartLimitIntervalSec=0
[Service]
Type=notify
ExecStart=/usr/local/bin/kubelet --config=/etc/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf
Restart=always
RestartSec=100ms
WatchdogSec=20
TimeoutAbortSec=2
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[RunningLab]:
    """A lab with nspawn machines and a control plane."""
    with RunningLab(kind="nspawn") as running:
        yield running


def _put(node: Node, path: str, content: bytes, mode: str = "0600") -> None:
    text = base64.b64encode(content).decode()
    node.run(f"mkdir -p $(dirname {path}) && base64 -d > {path} <<'END'\n{text}\nEND\nchmod {mode} {path}")


def test_a_service_that_hangs_is_started_again(lab: RunningLab) -> None:
    cluster, machine = lab.cluster(), lab.node("standin", "debian13")
    config: dict[str, Any] = {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "rotateCertificates": True,
        "failSwapOn": False,  # the host's swap is seen here
        "containerRuntimeEndpoint": "unix:///run/runtime.sock",
    }
    _put(machine, "/usr/local/bin/kubelet", build("1.36.4"), "0755")
    _put(machine, "/etc/kubelet.yaml", yaml.safe_dump(config).encode())
    access = kubeconfig(cluster.endpoint, cluster.ca_pem, {"token": cluster.token()})
    _put(machine, "/etc/kubernetes/bootstrap-kubelet.conf", access.encode())
    _put(machine, "/etc/cni/net.d/10-net.conflist", CONFLIST.encode())
    _put(machine, "/usr/local/bin/runtime", _RUNTIME, "0755")
    _put(machine, "/etc/systemd/system/runtime.service", _RUNTIME_UNIT.encode())
    _put(machine, "/etc/systemd/system/kubelet.service", _KUBELET.encode())
    assert machine.run("kubelet --version") == "Kubernetes v1.36.4"
    machine.run("systemctl daemon-reload && systemctl start runtime")
    until(lambda: machine.ssh("test -S /run/runtime.sock").returncode == 0, "the runtime")
    machine.run("systemctl start kubelet")  # returns once it said READY

    def ready() -> dict[str, Any]:
        found = cluster.nodes().get("standin", {})
        rows = {row["type"]: row["status"] for row in found.get("status", {}).get("conditions", [])}
        return found if rows.get("Ready") == "True" else {}

    found = until(ready, "the node")
    assert found["status"]["nodeInfo"]["machineID"] == machine.run("cat /etc/machine-id")
    assert found["status"]["addresses"][0] == {"type": "InternalIP", "address": machine.address}
    own = json.loads(machine.run("cat /etc/kubernetes/kubelet.conf"))
    assert own["users"][0]["user"]["client-certificate"] == "/var/lib/kubelet/pki/kubelet-client-current.pem"

    def about(name: str) -> str:
        return machine.run(f"systemctl show -P {name} kubelet")

    healthz = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:10248/healthz').read().decode())"
    for way in ("USR1", "STOP"):
        before, process = int(about("NRestarts")), about("MainPID")
        machine.run(f"kill -{way} {process}")
        until(lambda least=before + 1: int(about("NRestarts")) >= least, "a restart")
        assert "Watchdog timeout" in machine.run(f"journalctl -u kubelet _PID=1 -o cat | grep '{process}\\|Watchdog'")
        until(lambda: machine.ssh(f'python3 -c "{healthz}"').stdout.strip() == "ok", "healthz")
    assert machine.run("systemctl stop kubelet && systemctl show -P Result kubelet") == "success"
