# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths in variables and what a run keeps, with the collection as a user has it: built, and installed from the file."""

import re
from pathlib import Path

import pytest
import yaml

from dev.testbed import CHECKOUT
from tests.integration.playbooks.conftest import User

URL = {"kubenode_image_url": "https://i.example/x.raw", "kubenode_image_url_command": "image-url-command-own"}
PATHS = {
    "kubenode_bootstrap_data_file": "data/user-data.yml",
    "kubenode_command_dir": "commands",
    "kubenode_pre_provision_command": "./commands/ask",
    "kubenode_os_private_key": "keys/id_ed25519",
    "kubenode_dir": "state",
}


def files(folder: Path) -> None:
    """What the variables name, below a folder; but for ``kubenode_dir``, which is made."""
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


@pytest.mark.parametrize("where", ["inventory", "stands"])
def test_files_beside_the_inventory_and_in_the_working_directory_are_found(user, where):
    """A folder that is not there yet is made beside the inventory."""
    place = getattr(user, where)
    files(place)
    if where == "stands":
        (place / "state").mkdir()
    done = user.run("hcloud_image_url", kubenode_ssh_keys=["k"], **URL, **PATHS)
    assert "api_token: missing" in done.output, "the check of the inputs was passed\n" + done.output
    assert (place / "state" / "locks").is_dir()
    if where == "inventory":
        assert list(user.stands.iterdir()) == []
    joined = user.run("node_join", join_ca_file="ca.crt", join_api_server="https://192.0.2.1:6443")
    assert "no certificate" in joined.output or "join_ca_cert" in joined.output, joined.output
    assert "looked at" not in joined.output


def test_what_is_nowhere_is_an_error_with_all_places(user):
    done = user.run("hcloud_image_url", kubenode_ssh_keys=["k"], **URL, **PATHS)
    # before 2.19 a message is shown as JSON
    reported = " ".join(done.output.split()).replace('\\"', '"')
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
    joined.says(f"there is no 'ca.crt'; looked at {beside}/ca.crt, {here}/ca.crt")


def readme(beginning: str) -> str:
    """A block of code of README."""
    text = (CHECKOUT / "README.md").read_text()
    (block,) = [code for code in re.findall(r"```\w+\n(.*?)```", text, re.DOTALL) if code.startswith(beginning)]
    return block.replace("#sha256=…", "#sha256=" + "0" * 64)


@pytest.mark.parametrize("where", ["inventory", "stands", "."])
def test_the_quick_start_of_readme_finds_its_files_wherever_one_stands(user, where):
    """Up to the first word to the API, for which it needs a token; what a run keeps is beside the inventory."""
    own = user.inventory / "hosts.yml"
    blocks = (
        readme("# inventory.yml\nall:\n  hosts:\n    node-1:"),
        readme("# inventory.yml, more variables\n    base_"),
    )
    own.write_text("".join(blocks).replace("~/.ssh/id_ed25519", str(user.key)))
    (user.inventory / "cloud-init.yml").write_text("#cloud-config\n")
    (user.inventory / "ca.crt").write_text("no certificate")
    user.stands = user.folder / where
    done = user.run_here("hcloud_image_url")
    assert "api_token: missing" in done.output, done.output
    assert (user.inventory / "kubenode/locks").is_dir()
    done = user.run_here("node_join")
    assert "looked at" not in done.output
    assert "join_ca_file: " in done.output, done.output
    assert list((user.folder / "stands").iterdir()) == []


def kept(user: User, *flags: str, **variables: object) -> str:
    """A run up to the first word to the API; what it printed."""
    files(user.inventory)
    done = user.run(
        "hcloud_image_url", *flags, kubenode_ssh_keys=["k"], **{**URL, **PATHS, "kubenode_dir": ""}, **variables
    )
    return " ".join(done.output.split())


def test_what_a_run_keeps_of_a_folder_of_inventories_is_no_inventory(user):
    user.sources = [str(user.inventory)]
    (user.folder / "files").mkdir()
    files(user.folder / "files")  # Ansible reads all that is in the other one
    found = {name: f"../files/{path}" for name, path in PATHS.items() if name != "kubenode_dir"}
    done = user.run("hcloud_image_url", kubenode_ssh_keys=["k"], **URL, **found)
    assert "api_token: missing" in done.output, done.output
    assert (user.inventory / ".kubenode/locks").is_dir()
    assert sorted(path.name for path in user.inventory.iterdir()) == [".kubenode", "hosts.yml"]


def test_an_older_folder_of_the_working_directory_is_still_taken(user):
    (user.stands / "kubenode/quarantine").mkdir(parents=True)
    printed = kept(user)
    # ansible-core before 2.19 breaks warnings within words, too
    assert f"mv{user.stands}/kubenode{user.inventory}/kubenode,orsetkubenode_dir" in printed.replace(" ", "")
    assert (user.stands / "kubenode/locks").is_dir()
    assert not (user.inventory / "kubenode").exists()


def test_a_run_does_not_lose_what_only_an_older_folder_knows(user):
    (user.stands / "kubenode/quarantine").mkdir(parents=True)
    (user.stands / "kubenode/quarantine/n-1.json").write_text("{}")
    (user.inventory / "kubenode/locks").mkdir(parents=True)
    printed = kept(user)
    assert "What the second one knows about n-1, the first one lacks." in printed
    assert "Nothing was changed." in printed
    assert list((user.inventory / "kubenode/locks").iterdir()) == []


def test_a_list_of_hosts_keeps_it_where_one_stands(user):
    files(user.stands)
    user.sources = ["n-1,"]
    variables = {**URL, **PATHS, "kubenode_dir": "", "kubenode_ssh_keys": ["k"]}
    variables.update(ansible_host="127.0.0.1", ansible_ssh_private_key_file=str(user.key))
    (user.folder / "variables.yml").write_text(yaml.safe_dump(variables))
    done = user.run_here("hcloud_image_url", "-e", f"@{user.folder}/variables.yml")
    assert "api_token: missing" in done.output, done.output
    assert (user.stands / "kubenode/locks").is_dir()
