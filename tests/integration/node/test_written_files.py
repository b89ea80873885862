# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rendered files, read by the programs they are for."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_plan
from tests.unit.node.facts import given, node

ODD = "http://us%25er:p$a$$ss@proxy.example:3128/%41;x//y"


def files(inputs, **over) -> dict[str, str]:
    """Path → content of every file of the plan."""
    machine = node("debian-13", **over)
    secrets = base_plan.secrets(machine, inputs)
    plan = [item for item in base_plan.settings(machine, inputs) if item["kind"] == "file"]
    return {item["path"]: item.get("content") or secrets[item["content_secret"]] for item in plan}


def read(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("runtime", ["containerd", "docker"])
def test_systemd_finds_no_fault_in_the_units(tmp_path, runtime):
    inputs = given(container_runtime=runtime, http_proxy=ODD, https_proxy=ODD)
    # programs have to exist for the check; where they lie is not what is checked
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    units = tmp_path / "system"
    for path, content in files(inputs).items():
        if path.startswith("/etc/systemd/system/"):
            target = units / path.removeprefix("/etc/systemd/system/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(re.sub(r"^(Exec\w+=-?)\S+", rf"\1{program}", content, flags=re.MULTILINE))
    if runtime == "docker":
        (units / "docker.service").write_text(f"[Service]\nExecStart={program}\n")
    names = sorted(path for path in units.iterdir() if path.is_file())
    assert len(names) >= 4
    ended = read("systemd-analyze", "verify", "--man=no", *names, SYSTEMD_UNIT_PATH=f"{units}:")
    reported = [line for line in ended.stderr.splitlines() if str(tmp_path) in line or "kubenode" in line]
    assert not reported
    assert ended.returncode == 0, ended.stderr


def test_apt_reads_what_was_meant(tmp_path):
    found = files(given(http_proxy=ODD, https_proxy="http://plain.example"))
    for path, content in found.items():
        if path.startswith("/etc/apt/apt.conf.d/"):
            (tmp_path / Path(path).name).write_text(content)
    assert {path.name for path in tmp_path.iterdir()} == {"90-kubenode-proxy", "90-kubenode-unattended"}
    empty = tmp_path / "empty"
    empty.write_text(f'Dir::Etc::parts "{tmp_path}";\n')
    ended = read("apt-config", "dump", "--format", "%f=%v%n", APT_CONFIG=str(empty))
    assert ended.returncode == 0, ended.stderr
    values = ended.stdout.splitlines()
    assert "Acquire::http::Proxy=" + ODD in values
    assert "Acquire::https::Proxy=http://plain.example" in values
    excluded = [
        line.partition("=")[2] for line in values if line.startswith("Unattended-Upgrade::Package-Blacklist::=")
    ]
    for package in ("containerd", "containerd.io", "runc", "kubelet", "kubeadm", "docker-ce", "kubernetes-cni"):
        assert any(re.match(pattern, package) for pattern in excluded), package
    for package in ("openssl", "linux-image-amd64", "runc-doc", "libkubernetes"):
        assert not any(re.match(pattern, package) for pattern in excluded), package
