# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Relative paths in variables, with the collection installed as a user installs it: a copy, far from everything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from dev.testbed import CHECKOUT
from tests.integration.controller import Controller

URL = {"kubenode_image_url": "https://i.example/x.raw", "kubenode_image_url_command": "image-url-command-own"}
PATHS = {
    "kubenode_bootstrap_data_file": "data/user-data.yml",
    "kubenode_command_dir": "commands",
    "kubenode_pre_provision_command": "./commands/ask",
    "kubenode_os_private_key": "keys/id_ed25519",
    "kubenode_dir": "state",
}


class User(Controller):
    """A user whose inventory is in one folder, and whose working folder is another one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder)
        self.installed = folder / "collections"
        target = self.installed / "ansible_collections" / "kubenode" / "provision"
        for name in ("playbooks", "plugins", "roles", "meta"):
            shutil.copytree(CHECKOUT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(CHECKOUT / "galaxy.yml", target)
        self.inventory, self.stands = folder / "inventory", folder / "stands"
        self.inventory.mkdir()
        self.stands.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        others = os.environ["ANSIBLE_COLLECTIONS_PATH"]
        path = os.pathsep.join([str(self.installed), others])
        kept = {key: value for key, value in super().environment.items() if not key.startswith("HCLOUD_")}
        return {**kept, "ANSIBLE_COLLECTIONS_PATH": path}

    def run(self, playbook: str, **variables: object):
        """A run of an installed playbook from the user's working folder."""
        file = self.inventory / "hosts.yml"
        host = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_private_key_file": str(self.key)}
        file.write_text(yaml.safe_dump({"all": {"hosts": {"n-1": host}, "vars": variables}}))
        command = ["ansible-playbook", "-i", str(file), f"kubenode.provision.{playbook}"]
        return self.begin(command, self.stands).wait()


@pytest.fixture
def user(tmp_path) -> User:
    return User(tmp_path)


def files(folder: Path) -> None:
    """What the variables name, below a folder."""
    for name, text in {
        "data/user-data.yml": "#cloud-config\n",
        "keys/id_ed25519": "",
        "ca.crt": "no certificate",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("image-url-command-own", "ask"):
        path = folder / "commands" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (folder / "state").mkdir()


@pytest.mark.parametrize("where", ["inventory", "stands"])
def test_files_beside_the_inventory_and_in_the_working_directory_are_found(user, where):
    place = getattr(user, where)
    files(place)
    done = user.run("hcloud_image_url", kubenode_ssh_keys=["k"], **URL, **PATHS)
    assert "api_token: missing" in done.output, "the check of the inputs was passed\n" + done.output
    assert (place / "state" / "locks").is_dir()
    joined = user.run("node_join", join_ca_file="ca.crt", join_api_server="https://192.0.2.1:6443")
    assert "no certificate" in joined.output or "join_ca_cert" in joined.output, joined.output
    assert "looked at" not in joined.output


def test_what_is_nowhere_is_an_error_with_all_places(user):
    done = user.run("hcloud_image_url", kubenode_ssh_keys=["k"], **URL, **PATHS)
    reported = " ".join(done.output.split())
    beside, here = user.inventory, user.stands
    path = PATHS["kubenode_bootstrap_data_file"]
    assert (
        f"kubenode_bootstrap_data_file \"{path}\": it cannot be read (there is no '{path}'; looked at {beside}/{path}, "
        in reported
    )
    assert f"{here}/{path}, " in reported
    assert 'kubenode_pre_provision_command "./commands/ask": there is no such file (looked at ' in reported
    assert f"{beside}/commands/ask, {here}/commands/ask, " in reported
    assert f"there is no {beside}/commands/image-url-command-own" in reported
    assert "kubenode_os_private_key: there is no file" in reported
    joined = user.run("node_join", join_ca_file="ca.crt", join_api_server="https://192.0.2.1:6443")
    assert f"there is no 'ca.crt'; looked at {beside}/ca.crt, {here}/ca.crt" in " ".join(joined.output.split())


def test_what_is_made_is_beside_the_inventory(user):
    files(user.inventory)
    (user.inventory / "state").rmdir()
    user.run("hcloud_image_url", kubenode_ssh_keys=["k"], **URL, **PATHS)
    assert (user.inventory / "state").is_dir()
    assert list(user.stands.iterdir()) == []
