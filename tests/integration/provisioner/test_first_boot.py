# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that gets nothing but user data, and is a node of a real control plane when cloud-init is done."""

import hashlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.toolchain import release
from dev.toolchain.paths import CHECKOUT
from lab import mirror
from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL, Node
from tests.integration.commands.image_site import Web
from tests.integration.controller import Controller
from tests.integration.mirrored import real

pytestmark = [pytest.mark.root, pytest.mark.nspawn, pytest.mark.cluster, pytest.mark.mirror]

NAME = "first-boot-1"
ROLE = [{"hosts": "all", "gather_facts": False, "roles": ["kubenode.provision.node_user_data"]}]
NETWORK = {"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}


@pytest.fixture(scope="module")
def web(lab_nspawn) -> Iterator[Web]:
    """A web server that machines reach."""
    server = Web(socket.create_server((lab_nspawn.controller, 0)))
    yield server
    server.close()


def user_data(folder: Path, **variables: object) -> str:
    """What the role node_user_data makes of a host's variables."""
    result = folder / "user-data"
    controller = Controller(None, folder)
    controller.hosts[NAME] = {"ansible_connection": "local", "node_user_data_dest": str(result), **variables}
    done = controller.play(ROLE, "-v").ok()
    assert variables["join_token"] not in done.output
    assert result.stat().st_mode & 0o777 == 0o600
    return result.read_text(encoding="utf-8")


def with_packages(text: str, mirror_url: str) -> str:
    """The user data of ours together with that of the lab, which sets apt's package sources."""
    ours, labs = yaml.safe_load(text), mirror.cloud_config(mirror_url, "trixie")
    files = [*labs.pop("write_files"), *ours.pop("write_files")]
    labs["bootcmd"] = [["sh", "-c", SHARED_KERNEL]]
    return "#cloud-config\n" + yaml.safe_dump({**labs, **ours, "growpart": {"mode": "off"}, "write_files": files})


@pytest.fixture(scope="module")
def booted(lab_nspawn, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The machine after its first boot."""
    program = release.provision_program(release.collection_files(CHECKOUT), "1.2.3", preset=0)
    web.site.files["/provision"] = program
    cluster = lab_nspawn.cluster()
    text = user_data(
        tmp_path_factory.mktemp("user-data"),
        **real(lab_nspawn, KUBERNETES),
        node_user_data_provision_source=f"{web.site.url}/provision#sha256={hashlib.sha256(program).hexdigest()}",
        node_user_data_attempts=2,
        node_user_data_cloud_config="[global]\n",
        join_api_server=cluster.endpoint,
        join_ca_file=str(cluster.ca_file),
        join_token=cluster.token(),
        join_labels={"example.com/pool": "a"},
        join_cni_config=json.dumps(NETWORK),
        join_kubelet_config=SHARED_GROUPS,
        join_ready=True,
    )
    mirror.apt("trixie")
    return lab_nspawn.node(NAME, user_data=with_packages(text, lab_nspawn.mirror_url))


def said(node: Node) -> str:
    return node.ssh("cat /var/log/cloud-init-output.log").stdout


def test_it_is_a_node(booted, lab_nspawn):
    log = said(booted)
    assert "kubenode-setup: done" in log, log
    node = json.loads(lab_nspawn.cluster().kubectl("get", "node", NAME, "-o", "json"))
    assert node["metadata"]["labels"]["example.com/pool"] == "a"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v{KUBERNETES}"
    conditions = {entry["type"]: entry["status"] for entry in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert booted.run("systemctl is-active kubelet containerd").split() == ["active", "active"]
    assert booted.run("hostname") == NAME


def test_its_log_has_the_steps_and_no_secret(booted):
    log = said(booted)
    assert re.search(r"^changed:   kernel \(\d+ of \d+ changed, ", log, re.MULTILINE), log
    assert re.search(rf"^changed:   kubelet {re.escape(KUBERNETES)} \(", log, re.MULTILINE), log
    assert re.search(r"^provision: all: done \(\d+ s\)$", log, re.MULTILINE), log
    assert not re.search(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", log)


def test_its_secrets_are_gone_and_what_stays_is_private(booted):
    assert booted.run("ls /etc/kubenode/provision").split() == ["ca.crt", "done", "id", "setup.sh"]
    assert booted.run("ls -A /run/kubenode-provision") == ""
    assert not booted.ssh("ls /etc/kubernetes/bootstrap-kubelet.conf").stdout
    modes = booted.run("stat -c %a /etc/kubenode/provision /etc/kubernetes/cloud-config /var/lib/kubenode/provision")
    assert modes.split() == ["700", "600", "700"]
    # the token is in no file but those that cloud-init keeps of the user data, which only root can read
    found = booted.ssh(
        "grep -rlE '[a-z0-9]{6}\\.[a-z0-9]{16}$' /etc/kubernetes /etc/kubenode /var/lib/kubelet /tmp"
    ).stdout
    assert found == ""


def test_a_second_run_changes_nothing(booted, lab_nspawn):
    assert "set up already" in booted.run("sh /etc/kubenode/provision/setup.sh")
    variables = {
        **real(lab_nspawn, KUBERNETES),
        "join_kubelet_config": SHARED_GROUPS,
        "join_ca_cert": lab_nspawn.cluster().ca_pem,
        "join_labels": {"example.com/pool": "a"},
        "join_cni_config": json.dumps(NETWORK),
    }
    write = ["ssh", *booted.ssh_options, f"root@{booted.address}", "cat > /root/variables.json"]
    subprocess.run(write, input=json.dumps(variables), text=True, check=True)
    command = f"--vars /root/variables.json --api-server {lab_nspawn.cluster().endpoint}"
    done = booted.ssh(f"/var/lib/kubenode/provision-source/provision-* {command}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("^changed", done.stdout, re.MULTILINE), done.stdout
    assert "  changed: nothing" in done.stdout.splitlines()
