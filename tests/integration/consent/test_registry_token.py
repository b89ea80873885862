# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry token comes from a vaulted variable of a machine, else from the environment, and is shown nowhere."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from dev.toolchain.paths import CHECKOUT
from tests.integration.controller import Controller
from tests.integration.runs import LIMIT

#: the sign that it arrived: it is refused, and the text does not show it
TOKEN = "user:secret-password\x07"
REFUSED = "oci_registry_auth_token holds a control character"
#: the same of a run, where the SSH phase names the variable
REFUSED_IN = {"hcloud": "kubenode_registry_token holds a control character", "robot": REFUSED}
#: the tasks of a playbook that get it, and the variables that lead there without a machine
PHASES = {
    "hcloud": ("image_url", "ssh_phase"),
    "robot": ("robot", "robot_image_url_checks"),
}


def run(folder: Path, phase: str, variables: dict, env: dict) -> str:
    """Run one phase in check mode, which ends before anything is asked of the machine."""
    derived, tasks = PHASES[phase]
    machine = {"name": "n1", "failed": False, "installed": False, "proven": False, "ipv4": "192.0.2.1"}
    play = {
        "hosts": "n1",
        "gather_facts": False,
        "strategy": "ansible.builtin.linear",
        "vars_files": [str(CHECKOUT / f"playbooks/vars/{name}.yml") for name in ("common", derived)],
        "tasks": [{"ansible.builtin.import_tasks": str(CHECKOUT / f"playbooks/tasks/{tasks}.yml")}],
    }
    settings = {
        "kubenode_image_url": "https://x.example/a",
        "kubenode_image_url_command": "image-url-command-raw-disk",
        "kubenode_root_device_hints": {"smallest": True},
        "kubenode_dir": str(folder / "kubenode"),
        "kubenode_created": {"machines": []},
        "kubenode_armed": {"machines": [{**machine, "boot_state": "BootingToRescue"}]},
        "kubenode_reset": {"machines": [{**machine, "boot_state": "BootingToRescue"}]},
    }
    (folder / "settings.yml").write_text(yaml.safe_dump(settings))
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "password").write_text("vault\n")
    (folder / "host_vars").mkdir(exist_ok=True)
    (folder / "host_vars/n1").write_text(yaml.safe_dump(variables))
    if variables:
        vault = ["ansible-vault", "encrypt", "--vault-password-file", "password", "host_vars/n1"]
        subprocess.run(vault, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    (folder / "hosts").write_text("n1 ansible_connection=local\n")
    done = subprocess.run(
        ["ansible-playbook", "-vvv", "--check", "-e", "@settings.yml", "-i", "hosts",
         "--vault-password-file", "password", "play.yml"],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_LOCAL_TEMP": str(folder / "local"), **env},
    )  # fmt: skip
    assert "secret-password" not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("phase", PHASES)
def test_the_variable_is_what_the_module_gets(tmp_path, phase):
    said = run(tmp_path, phase, {"kubenode_registry_token": TOKEN}, {"OCI_REGISTRY_AUTH_TOKEN": "good"})
    assert REFUSED_IN[phase] in said
    assert "failed=1" in said, "a machine that failed is one that failed for Ansible, too"


@pytest.mark.parametrize("phase", PHASES)
def test_without_the_variable_the_environment_counts(tmp_path, phase):
    assert REFUSED_IN[phase] in run(tmp_path, phase, {}, {"OCI_REGISTRY_AUTH_TOKEN": TOKEN})
    said = run(tmp_path, phase, {}, {"OCI_REGISTRY_AUTH_TOKEN": ""})
    assert REFUSED_IN[phase] not in said
    assert "failed=0" in said


def test_it_is_checked_before_anything_is_created(tmp_path):
    machine = {"name": "n1", "image_url": "https://x.example/a", "command": "image-url-command-raw-disk"}
    task = {"machines": [{**machine, "oci_registry_auth_token": TOKEN}]}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"kubenode.provision.image_url_check": task}]}
    done = Controller(None, tmp_path).play([play], "-vvv").fails().says(f"n1: {REFUSED}")
    assert "secret-password" not in done.output
