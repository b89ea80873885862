# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official command line client (written in Go, strict about types), unmodified, against a dry lab."""

import json
import os
import subprocess

import pytest

from tests.key_pairs import key_pair


@pytest.fixture
def hcloud(lab_dry, tmp_path):
    """Run hcloud; returns its output."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **lab_dry.env}

    def run(*arguments, code=0):
        done = subprocess.run(
            ["hcloud", *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    return run


@pytest.fixture
def server(hcloud, tmp_path):
    key_pair(tmp_path / "key")
    hcloud("ssh-key", "create", "--name", "k1", "--public-key-from-file", str(tmp_path / "key.pub"))
    options = ["--type", "cx23", "--image", "ubuntu-24.04", "--ssh-key", "k1", "--location", "fsn1"]
    hcloud("server", "create", "--name", "n1", *options, "--start-after-create=false", "--label", "role=worker")

    def describe():
        return json.loads(hcloud("server", "describe", "n1", "-o", "json"))

    return describe


def test_rescue_boot(hcloud, server, lab_dry):
    assert (server()["status"], server()["labels"]) == ("off", {"role": "worker"})
    assert "root password" in hcloud("server", "enable-rescue", "--ssh-key", "k1", "n1")
    assert server()["rescue_enabled"]
    hcloud("server", "poweron", "n1")
    assert (server()["status"], server()["rescue_enabled"]) == ("running", False)
    (machine,) = lab_dry.control("GET", "/machines")["machines"]
    assert [boot["source"] for boot in machine["boots"]] == ["rescue"]


def test_power_disk_and_delete(hcloud, server):
    hcloud("server", "poweron", "n1")
    hcloud("server", "reset", "n1")
    hcloud("server", "reboot", "n1")
    hcloud("server", "create-image", "--type", "snapshot", "--description", "golden", "n1")
    assert "golden" in hcloud("image", "list", "-t", "snapshot")
    hcloud("server", "rebuild", "--image", "debian-12", "n1")
    assert server()["image"]["name"] == "debian-12"
    hcloud("server", "poweroff", "n1")
    hcloud("server", "change-type", "n1", "cx33")
    assert server()["server_type"]["name"] == "cx33"
    hcloud("server", "add-label", "n1", "a=b")
    assert "n1" in hcloud("server", "list", "-l", "a=b,role in (worker)")
    hcloud("server", "delete", "n1")
    assert "not found" in hcloud("server", "describe", "n1", code=1)


def test_networks_groups_and_firewalls(hcloud, server):
    hcloud("network", "create", "--name", "net", "--ip-range", "10.0.0.0/16")
    hcloud("server", "attach-to-network", "--network", "net", "n1")
    assert server()["private_net"][0]["ip"].startswith("10.0.")
    hcloud("placement-group", "create", "--name", "pg", "--type", "spread")
    hcloud("server", "add-to-placement-group", "--placement-group", "pg", "n1")
    assert server()["placement_group"]["name"] == "pg"
    hcloud("firewall", "create", "--name", "fw")
    hcloud("server", "enable-protection", "n1", "delete", "rebuild")
    assert "protected" in hcloud("server", "delete", "n1", code=1)


def test_catalogue(hcloud):
    assert "cax41" in hcloud("server-type", "list")
    assert "sin" in hcloud("location", "list")
    assert "ubuntu-24.04" in hcloud("image", "list", "-t", "system")
    assert "€" in hcloud("server-type", "describe", "cx23")
    assert "deprecated_api_endpoint" in hcloud("datacenter", "list", code=1)
