# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry token comes from a vaulted variable of a machine, else from the environment, and is shown nowhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from dev.toolchain.paths import CHECKOUT

PLAYBOOKS = ("hcloud_image_url", "robot_image_url")
#: what tells that it arrived: it is refused, and the text does not show it
TOKEN = "user:secret-password\x07"
REFUSED = "oci_registry_auth_token holds a control character"


def defaults(playbook: str) -> dict:
    """The module defaults of the plays that run image commands."""
    plays = yaml.safe_load((CHECKOUT / "playbooks" / f"{playbook}.yml").read_text())
    found = [play["module_defaults"] for play in plays if play.get("strategy") == "ansible.builtin.free"]
    assert len(found) == 2
    assert found[0] == found[1]
    return found[0]


def run(folder: Path, playbook: str, variables: dict, env: dict) -> str:
    """Run a play of one image command in check mode, which ends before anything is asked of the machine."""
    task = {"image_url": "https://x.example/a", "command": "image-url-command-raw-disk"}
    play = {
        "hosts": "n1",
        "gather_facts": False,
        "module_defaults": defaults(playbook),
        "tasks": [{"kubenode.provision.image_url_command": task}],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "password").write_text("vault\n")
    (folder / "host_vars").mkdir(exist_ok=True)
    (folder / "host_vars/n1").write_text(yaml.safe_dump(variables))
    if variables:
        vault = ["ansible-vault", "encrypt", "--vault-password-file", "password", "host_vars/n1"]
        subprocess.run(vault, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    (folder / "hosts").write_text("n1 ansible_connection=local\n")
    done = subprocess.run(
        ["ansible-playbook", "-vvv", "--check", "-i", "hosts", "--vault-password-file", "password", "play.yml"],
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_LOCAL_TEMP": str(folder / "local"), **env},
    )  # fmt: skip
    assert "secret-password" not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_variable_is_what_the_module_gets(tmp_path, playbook):
    assert REFUSED in run(tmp_path, playbook, {"kubenode_registry_token": TOKEN}, {"OCI_REGISTRY_AUTH_TOKEN": "good"})


def test_without_the_variable_the_environment_counts(tmp_path):
    assert REFUSED in run(tmp_path, PLAYBOOKS[0], {}, {"OCI_REGISTRY_AUTH_TOKEN": TOKEN})
    assert "would run" in run(tmp_path, PLAYBOOKS[0], {}, {"OCI_REGISTRY_AUTH_TOKEN": ""})


def test_it_is_checked_before_anything_is_created(tmp_path):
    machine = {"name": "n1", "image_url": "https://x.example/a", "command": "image-url-command-raw-disk"}
    task = {"machines": [{**machine, "oci_registry_auth_token": TOKEN}]}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"kubenode.provision.image_url_check": task}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        ["ansible-playbook", "-vvv", "play.yml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")},
    )  # fmt: skip
    assert f"n1: {REFUSED}" in done.stdout
    assert "secret-password" not in done.stdout + done.stderr
