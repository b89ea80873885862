# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that begin with a system: what a node needs works in containers, cut off or copied."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import mirror
from lab.cluster.tools import oci_archive
from lab.errors import LabError
from lab.nodes import Node
from lab.running import RunningLab

pytestmark = [pytest.mark.nspawn, pytest.mark.mirror]
_SUITES = {"debian": "bookworm", "debian13": "trixie"}
_METADATA = "169.254.169.254"
_IMAGE = "registry.example/waits:1"


@pytest.fixture(scope="module", params=sorted(_SUITES))
def node(request: pytest.FixtureRequest, lab_nspawn: RunningLab) -> Iterator[Node]:
    """One machine for the tests that change nothing for each other: one with cloud-init, one without."""
    name = f"node-{request.param}"
    yield lab_nspawn.node(name, request.param, cloud_init=request.param == "debian13")
    lab_nspawn.remove(name)


def _url(lab: RunningLab, name: str, version: str) -> str:
    (part,) = (part for part in mirror.packaged() if (part.name, part.version) == (name, version))
    return f"{lab.mirror_url}/{part.path}"


def test_what_a_preflight_looks_at(node: Node) -> None:
    assert node.run("cat /etc/os-release | sed -n s/^VERSION_CODENAME=//p") == node.suite
    assert node.run("hostname") == node.name
    node.run("test -e /sys/fs/cgroup/cgroup.controllers && test -e /proc/sys/net/bridge/bridge-nf-call-iptables")
    node.run("python3 -c 'import sys; assert sys.version_info >= (3, 11)' && command -v openssl")
    assert node.run("systemctl is-system-running") == "running"
    assert int(node.run("stat -f -c '%a * %S' / | xargs expr")) > 20 << 30, "the root has grown"
    assert "node" in node.run("logger --tag kubenode-test hello node; journalctl --sync; journalctl -t kubenode-test")


def test_packages_come_from_the_mirror_alone(node: Node, lab_nspawn: RunningLab) -> None:
    source = f"{lab_nspawn.mirror_url}/apt/{node.suite} ./"
    assert node.run("cat /etc/apt/sources.list /etc/apt/sources.list.d/*; true").split("] ")[1:] == [source]
    update = node.run("LC_ALL=C apt-get update 2>&1")
    assert not [line for line in update.splitlines() if line.startswith(("W:", "E:", "Err"))]
    node.run("DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends conntrack socat ethtool")
    node.run("socat -V && ethtool --version")


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.1.9"])
def test_containerd_of_the_mirror_serves_cri(node: Node, lab_nspawn: RunningLab, version: str, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(oci_archive(b"no program", "waits", _IMAGE))
    subprocess.run(["scp", *node.ssh_options, str(archive), f"root@{node.address}:/root/image.tar"], check=True)
    unit = "lab-containerd"
    script = f"""set -e
        mkdir -p /opt/c && cd /opt/c
        curl -sSf {_url(lab_nspawn, "containerd", version)} | tar xz
        curl -sSf -o bin/runc {_url(lab_nspawn, "runc", "1.1.5")} && chmod 0755 bin/runc
        curl -sSf {_url(lab_nspawn, "cni-plugins", "1.9.1")} | tar xz -C bin
        export PATH=/opt/c/bin:$PATH
        runc --version >&2; CNI_COMMAND=VERSION bridge </dev/null >&2; containerd --version >&2
        systemd-run --quiet --unit={unit} -p Type=notify -p Delegate=yes -E PATH=$PATH /opt/c/bin/containerd
        ctr --namespace k8s.io images import /root/image.tar >&2
        ctr --namespace k8s.io images ls -q name=={_IMAGE}
        ctr plugins ls | awk '$2 == "cri" {{ print $NF }}'"""
    try:
        assert node.run(script).split() == [_IMAGE, "ok"]
    finally:
        node.ssh(f"systemctl stop {unit}; rm -rf /var/lib/containerd /run/containerd /opt/c")


@pytest.mark.long
def test_a_cut_off_machine_stays_cut_off(lab_nspawn: RunningLab) -> None:
    lab = lab_nspawn
    node = lab.node("cut")
    urls = [f"{lab.mirror_url}/apt/key.asc", f"http://{_METADATA}/hetzner/v1/metadata/hostname"]

    def assert_urls_are(*wanted: str) -> None:
        # without an answer a client soon gives up; while an answer arrives it waits
        limits = {"cut": 5, "reached": 180}
        curls = [f"curl -s -m {limits[want]} -o /dev/null {url}" for url, want in zip(urls, wanted, strict=True)]
        assert node.run("; ".join(f"{curl} && echo reached || echo cut" for curl in curls)).split() == [*wanted]

    assert_urls_are("reached", "reached")
    lab.isolate("cut", [lab.controller])
    assert_urls_are("cut", "cut")
    # Without the metadata service cloud-init would look for it for some time at every boot.
    lab.isolate("cut", [lab.controller, _METADATA])
    before = node.boot_id()
    node.ssh("systemctl reboot")
    node.wait(unless=before)
    assert_urls_are("cut", "reached")
    lab.isolate("cut", None)
    assert_urls_are("reached", "reached")
    lab.remove("cut")


def test_a_disk_becomes_the_image_of_another_machine(lab_nspawn: RunningLab) -> None:
    lab = lab_nspawn
    first = lab.node("first")
    first.run("echo baked >/etc/baked")
    with pytest.raises(LabError, match="machine first is on; power it off"):
        lab.disk_image("first")
    lab.power_off("first")
    second = lab.node("second", lab.disk_image("first"), user_data="")
    assert second.run("cat /etc/baked; hostname").split() == ["baked", "second"]
    second.run("echo eaten >/etc/baked; sync")
    lab.power_on("first")
    first.wait()
    assert first.run("cat /etc/baked; hostname").split() == ["baked", "first"]
    for name in ("first", "second"):
        lab.remove(name)


def test_wrong_wishes_are_refused(lab_nspawn: RunningLab) -> None:
    with pytest.raises(LabError, match="image 'noble' is neither a path nor one of debian, debian13"):
        lab_nspawn.node("wrong", "noble")
    with pytest.raises(LabError, match="size '8 gigs' is not a number of bytes"):
        lab_nspawn.node("wrong", disk="8 gigs")
    with pytest.raises(LabError, match="user_data is for cloud-init, and cloud_init is off"):
        lab_nspawn.node("wrong", user_data="#cloud-config\n", cloud_init=False)
    with pytest.raises(LabError, match="no server is called 'missing'"):
        lab_nspawn.isolate("missing")
