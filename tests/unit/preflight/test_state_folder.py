# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where kubenode_dir is: with the inventory, wherever one stands, and never in what Ansible reads as inventory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import controller_paths
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import machine_inventory
from tests.folders import put

HOSTS = "all:\n  hosts:\n    n1:\n"


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """An inventory file, a folder of inventories, and another folder that one stands in."""
    for folder in ("site/prod", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    for path in ("site/hosts.yml", "site/prod/hosts.yml"):
        (tmp_path / path).write_text(HOSTS)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "site"


def state(folder: Path, *notes: str) -> Path:
    """What a run keeps; ``notes``: files in it."""
    (folder / "locks").mkdir(parents=True)
    for note in notes:
        (folder / note).parent.mkdir(exist_ok=True)
        (folder / note).write_text("{}")
    return folder


def findings(*sources: Path | str, **variables: str) -> tuple[list[str], list[str]]:
    host = {"inventory_hostname": "n1", "ansible_inventory_sources": [str(one) for one in sources], **variables}
    return controller_paths.findings([host])


@pytest.mark.parametrize("where", ["elsewhere", "site", "."])
def test_it_is_beside_the_inventory_wherever_one_stands(site, monkeypatch, where):
    monkeypatch.chdir(site.parent / where)
    assert controller_paths.state_folder([str(site / "hosts.yml")]) == str(site / "kubenode")
    assert findings(site / "hosts.yml") == ([], [])


def test_the_first_inventory_that_is_there_decides(site):
    files = [str(site / "hosts.yml"), str(site / "prod/hosts.yml")]
    assert controller_paths.state_folder(files) == str(site / "kubenode")
    assert controller_paths.state_folder(files[::-1]) == str(site / "prod/kubenode")
    assert controller_paths.state_folder(["n2,n3", "/etc/nowhere", *files]) == str(site / "kubenode")


def test_a_script_and_the_configuration_of_a_plugin_are_files(site):
    script = put(site / "machines", "#!/bin/sh\n", 0o755)
    assert controller_paths.state_folder([str(script)]) == str(site / "kubenode")


def test_without_an_inventory_it_is_where_one_stands(site):
    for sources in ([], ["n1,"], ["n1,n2,"], ["/etc/nowhere/hosts"]):
        assert controller_paths.state_folder(sources) == str(Path.cwd() / "kubenode")


def test_ansible_does_not_read_what_lies_in_a_folder_of_inventories(site):
    made = state(Path(controller_paths.state_folder([str(site / "prod")])), "intents/n1.json", "logs/n1.log")
    assert made == site / "prod/.kubenode"
    (made / "inventory.yml").write_text("all:\n  hosts:\n    stranger:\n")
    known = InventoryManager(loader=DataLoader(), sources=[str(site / "prod")])
    assert sorted(known.hosts) == ["n1"]


@pytest.mark.parametrize(("first", "second"), [("prod", "prod/hosts.yml"), ("prod/hosts.yml", "prod")])
def test_a_folder_and_a_file_in_it_have_one_state(site, first, second):
    made = controller_paths.state_folder([str(site / first)])
    state(Path(made))
    assert controller_paths.state_folder([str(site / second)]) == made


def test_an_inventory_in_it_has_it_too(site):
    made = state(site / "kubenode")
    (made / "inventory.yml").write_text(HOSTS)
    assert controller_paths.state_folder([str(made / "inventory.yml")]) == str(made)
    # a folder of that name which no run has made is a folder like others
    (site / "prod/kubenode").mkdir()
    (site / "prod/kubenode/hosts.yml").write_text(HOSTS)
    assert controller_paths.state_folder([str(site / "prod/kubenode/hosts.yml")]) == str(
        site / "prod/kubenode/kubenode"
    )


def test_the_inventory_that_runs_write_is_known_wherever_it_lies(site):
    made = site / "elsewhere"
    machine_inventory.change(str(made / "inventory.yml"), {"n1": {"ansible_host": "192.0.2.1"}})
    assert controller_paths.state_folder([str(made / "inventory.yml")]) == str(made)


@pytest.mark.parametrize("given", ["state", "./state"])
def test_a_relative_one_is_beside_the_first_inventory(site, given):
    files = [str(site / "hosts.yml"), str(site / "prod/hosts.yml")]
    assert controller_paths.state_folder(files, given) == str(site / "state")
    # not in what Ansible reads
    assert controller_paths.state_folder([str(site / "prod")], given) == str(site / "state")
    (Path.cwd() / "state").mkdir()
    assert controller_paths.state_folder(files, given) == str(Path.cwd() / "state")


def test_an_absolute_one_is_taken_as_it_is(site):
    assert controller_paths.state_folder([str(site / "prod")], "/srv/state") == "/srv/state"
    assert controller_paths.state_folder([], "~/state") == os.path.expanduser("~/state")


def test_an_older_one_of_the_working_directory_is_taken_with_a_warning(site):
    older = state(Path.cwd() / "kubenode", "quarantine/n1.json")
    assert controller_paths.state_folder([str(site / "hosts.yml")]) == str(older)
    errors, (warning,) = findings(site / "hosts.yml")
    assert errors == []
    assert f"mv {older} {site}/kubenode" in warning
    older.rename(site / "kubenode")
    assert controller_paths.state_folder([str(site / "hosts.yml")]) == str(site / "kubenode")
    assert findings(site / "hosts.yml") == ([], [])


@pytest.mark.parametrize("note", ["intents/n1.json", "quarantine/n1.json", "known_hosts/n1.os", "reboots/n1.json"])
def test_what_only_an_older_one_knows_stops_the_run(site, note):
    older, made = state(Path.cwd() / "kubenode", note), state(site / "kubenode")
    assert controller_paths.state_folder([str(site / "hosts.yml")]) == str(made)
    (error,), warnings = findings(site / "hosts.yml")
    assert warnings == []
    assert f"cp -an {older}/. {made}/" in error
    assert "about n1" in error
    # as soon as one folder is named, that one counts
    assert findings(site / "hosts.yml", kubenode_dir="state") == ([], [])
    (made / note).parent.mkdir()
    (made / note).write_text("{}")
    assert findings(site / "hosts.yml") == ([], [])


def test_what_an_older_one_knows_of_other_machines_stops_no_run(site):
    state(Path.cwd() / "kubenode", "quarantine/n7.json")
    state(site / "kubenode")
    assert findings(site / "hosts.yml") == ([], [])


def test_a_folder_of_another_kind_is_left_alone(site):
    (Path.cwd() / "kubenode/src").mkdir(parents=True)
    assert controller_paths.state_folder([str(site / "hosts.yml")]) == str(site / "kubenode")
    assert findings(site / "hosts.yml") == ([], [])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/dev/null", "/dev/null, where"),
        ("/dev/null/state", "/dev/null/state, where"),
        ("hosts.yml", "hosts.yml ({site}/hosts.yml), where"),
    ],
)
def test_a_place_that_is_set_and_is_no_folder_stops_the_run(site, given, shown):
    """It was said of a file in it, without the variable, when a machine was looked at."""
    (error,), warnings = findings(site / "hosts.yml", kubenode_dir=given, inventory_dir=str(site))
    assert error == (
        f"kubenode_dir is {shown.format(site=site)} no file can be written; set it to a folder that can be written"
    )
    assert warnings == []


@pytest.mark.parametrize("given", ["state", "state/new/deep", "~/state", "a\0b", ["state"], ""])
def test_a_place_that_is_set_and_can_be_made_is_taken(site, monkeypatch, given):
    monkeypatch.setenv("HOME", str(site))
    assert findings(site / "hosts.yml", kubenode_dir=given) == ([], [])


def test_a_place_that_cannot_be_written_stops_the_run(site, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != site)
    (error,), _warnings = findings(site / "hosts.yml")
    assert error == f"kubenode_dir is not set, and {site}/kubenode cannot be written; set it to a folder that can"
    (site / "hosts.yml").unlink()


def test_what_is_made_for_a_host_is_not_made_in_a_folder_of_inventories(site):
    prod, sources = str(site / "prod"), [str(site / "prod")]
    assert controller_paths.for_writing("out", prod, sources) == str(site / "out")
    assert controller_paths.for_writing("out", prod, []) == f"{prod}/out"
    # what is there is taken
    (site / "prod/out").mkdir()
    assert controller_paths.for_writing("out", prod, sources) == f"{prod}/out"
