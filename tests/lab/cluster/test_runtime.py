# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our crictl, the real one beside it, and the pause image with real containerds: both say the same."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.cluster import ensure_crictl, ensure_tools
from lab.nodes import Node
from lab.running import RunningLab

pytestmark = [pytest.mark.cluster, pytest.mark.mirror, pytest.mark.nspawn]
_CONTAINERD = "github.com/containerd/containerd/releases/download/v{0}/containerd-{0}-linux-amd64.tar.gz"
_PAUSE = "registry.k8s.io/pause:3.10.1"


@pytest.fixture(scope="module")
def node(lab_nspawn: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A machine with both and the pause archive."""
    node = lab_nspawn.node("crictl", "debian13")
    folder = tmp_path_factory.mktemp("files")
    programs = ensure_tools()
    (folder / "ours").write_bytes(programs.crictl("1.36.0"))
    (folder / "real").write_bytes(ensure_crictl().read_bytes())
    (folder / "pause.tar").write_bytes(programs.pause("3.10.1"))
    _copy(node, folder / "ours", folder / "real", folder / "pause.tar")
    node.run("chmod 755 /root/ours /root/real; mkdir -p /etc/containerd /opt/containerd")
    node.run("printf 'runtime-endpoint: unix:///run/containerd/containerd.sock\ntimeout: 60\n' >/etc/crictl.yaml")
    yield node
    lab_nspawn.remove("crictl")


@pytest.fixture(scope="module", params=["1.7.24", "2.1.9"])
def containerd(node: Node, lab_nspawn: RunningLab, request: pytest.FixtureRequest) -> Iterator[str]:
    """One version of containerd, started from nothing."""
    url = f"{lab_nspawn.mirror_url}/{_CONTAINERD.format(request.param)}"
    node.run(f"rm -rf /opt/containerd/*; curl -sSf {url} | tar -xzC /opt/containerd")
    schema = 3 if request.param.startswith("2") else 2
    node.run(f"echo 'version = {schema}' >/etc/containerd/config.toml")
    unit = "systemd-run --quiet --unit=containerd --property=Type=notify --property=Delegate=yes"
    node.run(f"PATH=/opt/containerd/bin:$PATH; {unit} --setenv=PATH=$PATH /opt/containerd/bin/containerd")
    yield request.param
    node.run("systemctl stop containerd; rm -rf /var/lib/containerd")


@pytest.fixture(params=["ours", "real"])
def crictl(node: Node, request: pytest.FixtureRequest) -> None:
    """One of both, by its name."""
    node.run(f"ln -sf /root/{request.param} /usr/local/bin/crictl")


@pytest.mark.usefixtures("crictl")
def test_it_shows_the_runtime_and_its_images(node: Node, containerd: str) -> None:
    reported = yaml.safe_load(node.run("crictl version"))
    assert reported["RuntimeName"] == "containerd"
    assert reported["RuntimeVersion"].removeprefix("v").startswith(containerd)
    assert reported["RuntimeApiVersion"] in ("v1", "v1alpha2")
    info = json.loads(node.run("crictl info"))
    conditions = {condition["type"]: condition["status"] for condition in info["status"]["conditions"]}
    assert conditions["RuntimeReady"] is True
    assert conditions["NetworkReady"] is False  # no CNI configuration
    assert "config" in info
    assert node.run("crictl images -q; crictl pods -q; crictl ps -aq") == ""

    node.run("/opt/containerd/bin/ctr -n k8s.io images import /root/pause.tar")
    assert node.run(f"crictl images -q {_PAUSE}").startswith("sha256:")
    (image,) = json.loads(node.run("crictl images -o json"))["images"]
    assert image["repoTags"] == [_PAUSE]
    assert image["pinned"] is False
    assert json.loads(node.run(f"crictl inspecti {_PAUSE}"))["status"]["id"] == image["id"]
    missing = node.ssh("crictl inspecti example.com/nothing:1")
    assert missing.returncode == 1
    # the real one writes it as a value of a log line
    assert 'no such image "example.com/nothing:1" present' in missing.stderr.replace("\\", "")
    assert node.ssh("crictl pull 127.0.0.1:1/nothing:1").returncode == 1
    assert f"Deleted: {_PAUSE}" in node.run(f"crictl rmi {_PAUSE}")
    assert node.run("crictl images -q") == ""


@pytest.mark.usefixtures("crictl", "containerd")
def test_a_stopped_runtime_is_no_answer(node: Node) -> None:
    node.run("systemctl kill --signal=STOP containerd")
    silent = node.ssh("crictl --timeout 2s info")
    node.run("systemctl kill --signal=CONT containerd")
    assert silent.returncode == 1
    assert "RuntimeReady" not in silent.stdout
    assert "RuntimeReady" in node.run("crictl info")


def _copy(node: Node, *files: Path) -> None:
    subprocess.run(["scp", *node.ssh_options, *map(str, files), f"root@{node.address}:"], check=True, timeout=600)
