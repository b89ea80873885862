# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every variable of a machine in each playbook that writes machines: used, refused, reported, or of another subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import (
    conflicts,
    known_variables,
    machine_specs,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import install_plan

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
#: Of limits and ways that a playbook does not have: nothing that a user wants is lost. The rest is refused or reported.
_RESETS = """kubenode_clear_quarantine kubenode_give_back_after kubenode_host_key_checking kubenode_hw_reset_timeout
    kubenode_look_timeout kubenode_on_reset_limit kubenode_power_reset_timeout kubenode_rename kubenode_server_name
    kubenode_ssh_key_name kubenode_ssh_reset_timeout kubenode_sw_reset_timeout kubenode_device_strings
    kubenode_disk_health"""
_OF_CLOUD = """kubenode_enable_ipv4 kubenode_enable_ipv6 kubenode_firewalls kubenode_image_newest kubenode_labels
    kubenode_networks kubenode_placeholder_image kubenode_placement_group kubenode_ssh_keys kubenode_image_name"""
_OF_WRITING = """kubenode_check_image kubenode_command_dir kubenode_command_names kubenode_command_timeout
    kubenode_registry_token kubenode_rescue_timeout kubenode_success kubenode_root_devices kubenode_root_device_hints"""
_OF_INSTALLIMAGE = """kubenode_autosetup kubenode_crypt_password kubenode_image kubenode_logical_volumes
    kubenode_network_config kubenode_partitions kubenode_post_install_script kubenode_remote_unlock
    kubenode_subvolumes kubenode_swraid kubenode_swraid_level"""
_OF_EVENTS = "kubenode_events kubenode_kube_context kubenode_kubeconfig"
SILENT = {
    "hcloud_image_url": _RESETS + " kubenode_swraid_level",
    "hcloud_image_name": _RESETS + " " + _OF_WRITING + " " + _OF_INSTALLIMAGE + " " + _OF_EVENTS,
    "robot_image_url": _OF_CLOUD + " kubenode_swraid_level",
    "robot_installimage": _OF_CLOUD,
}
#: Read by a filter that serves several playbooks, and without effect in this one.
READ_FOR_NOTHING = {
    "hcloud_image_name": ["kubenode_placeholder_image"],
    "robot_image_url": ["kubenode_root_devices"],
    "robot_installimage": ["kubenode_device_strings", "kubenode_image_url_command"],
}
IMAGE = {"kubenode_image_name": "debian-13", "kubenode_image_url": "https://u:secret@i.example/x.raw"}


def test_every_proof_of_a_new_system_goes_to_its_own_port():
    for path in PLAYBOOKS.rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        if "kubenode.provision.machine_boot:" in text and "expect: rescue" not in text:
            assert "kubenode_os_port" in text, path.name


def texts(name: str, seen: set[str]) -> Iterator[str]:
    """The files that a playbook is made of, without their comments."""
    if name in seen:
        return
    seen.add(name)
    lines = (PLAYBOOKS / name).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.strip().startswith("#"))
    yield text
    for one, other in re.findall(r"(?:import_tasks|include_tasks):\s*(\S+\.yml)|-\s+(vars/\S+\.yml)", text):
        (path, *_more) = [place for place in (one or other, f"tasks/{one}") if (PLAYBOOKS / place).is_file()]
        yield from texts(path, seen)


def used(playbook: str) -> set[str]:
    """The variables of users that a playbook reads."""
    text = "\n".join(texts(f"{playbook}.yml", set()))
    names = set(re.findall(r"\bkubenode_[a-z][a-z0-9_]*", text))
    for purpose in re.findall(r"machine_specs\('(\w+)'\)", text):
        names.update(*machine_specs.VARIABLES[purpose].values())
    if "install_plan" in text:
        names.add("kubenode_adopt")  # of a system that was found
        hosts = [{"inventory_hostname": "n", **dict.fromkeys(known_variables.OF_USERS, "x")}]
        (machine,) = install_plan.plan(hosts, playbook, None, "/dir")
        for step, options in install_plan.variables().items():
            names |= {variable for option, variable in options.items() if option in machine.get(step, {})}
    return names & known_variables.OF_USERS


ALL = set().union(*(used(playbook) for playbook in SILENT))


@pytest.mark.parametrize("playbook", SILENT)
def test_no_variable_of_a_machine_is_ignored_without_a_word(playbook):
    """The table of the code and the one of this test together are all variables that another playbook uses."""
    rows = [*conflicts.UNUSED, *conflicts.FOREIGN]
    reported = {row.variable for row in rows if playbook in row.playbooks}
    pairs = {name for pair in conflicts.PAIRS for name in (pair.one, pair.other) if playbook in pair.playbooks}
    silent = set(SILENT[playbook].split())
    assert ALL - used(playbook) - reported - pairs - silent == set()
    assert silent - ALL == set()
    always = {row.variable for row in rows if playbook in row.playbooks and not (row.unless or row.of)}
    assert used(playbook) & always == set(READ_FOR_NOTHING.get(playbook, ()))


def test_the_tables_name_variables_and_playbooks_that_exist():
    rows = [*conflicts.UNUSED, *conflicts.FOREIGN]
    names = [name for row in rows for name in (row.variable, row.unless, row.of) if name]
    names += [name for pair in conflicts.PAIRS for name in (pair.one, pair.other) if name.startswith("kubenode_")]
    assert {*names, *conflicts.OF_THE_RUN} - known_variables.OF_USERS == set()
    playbooks = {one for row in (*rows, *conflicts.PAIRS) for one in row.playbooks}
    playbooks.update(*conflicts.OF_THE_RUN.values())
    assert {one for one in playbooks if not (PLAYBOOKS / f"{one}.yml").is_file()} == set()


def test_what_is_read_once_for_the_run_is_in_the_table():
    """A task with run_once reads a variable of the first host, not those of the others."""
    tasks = re.split(r"\n(?=- name: )", "\n".join(path.read_text() for path in sorted(PLAYBOOKS.glob("tasks/*.yml"))))
    once = [task for task in tasks if "\n  run_once: true" in task]
    read = {name for task in once for name in re.findall(r"\{\{ (kubenode_[a-z_]+) \| default", task)}
    assert (read & known_variables.OF_USERS) - set(conflicts.OF_THE_RUN) == set()


@pytest.mark.parametrize("playbook", ["hcloud_image_url", "hcloud_image_name"])
def test_a_name_and_a_url_of_an_image_are_one_error(playbook):
    hosts = [{"inventory_hostname": f"n{number}", **IMAGE} for number in range(1, 6)]
    (sentence,) = conflicts.refused(hosts, playbook)
    assert sentence.startswith('n1, n2, n3 and 2 more: kubenode_image_name is "debian-13" and kubenode_image_url is ')
    assert "leave one of the two out" in sentence
    assert "secret" not in sentence
    for name in IMAGE:
        assert conflicts.refused([{"inventory_hostname": "n1", **IMAGE, name: None}], playbook) == []
    # the temporary machines of node images have both, and users have neither of theirs
    assert conflicts.refused([{"inventory_hostname": "n1", **IMAGE, "kubenode_build": {}}], playbook) == []


@pytest.mark.parametrize("playbook", ["hcloud_image_url", "robot_image_url", "robot_installimage"])
def test_an_image_of_installimage_and_a_url_are_one_error(playbook):
    image = {"url": "https://u:secret@i.example/x.tar.gz"}
    host = {"inventory_hostname": "n1", "kubenode_image": image, "kubenode_image_url": IMAGE["kubenode_image_url"]}
    (sentence,) = conflicts.refused([host], playbook)
    assert "kubenode_image is " in sentence
    assert "kubenode_image_url is " in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize("variable", conflicts.OF_THE_RUN)
def test_what_counts_for_the_run_is_the_same_for_all(variable):
    playbook = conflicts.OF_THE_RUN[variable][0]
    hosts = [{"inventory_hostname": "a", variable: 4}, {"inventory_hostname": "b"}]
    (sentence,) = conflicts.refused(hosts, playbook)
    shown = "(hidden)" if variable.startswith("kubenode_notify_") else "4"
    assert sentence.startswith(f"{variable} is {shown} for a and not set for b, but it counts for the whole run")
    assert conflicts.refused([{**host, variable: 4} for host in hosts], playbook) == []


def test_a_dedicated_server_is_no_cloud_machine():
    (sentence,) = conflicts.refused([{"inventory_hostname": "n1", "kubenode_server_number": 321}], "hcloud_image_url")
    assert sentence == "n1: kubenode_server_number is 321: " + conflicts.FOREIGN[0].instead


@pytest.mark.parametrize("row", conflicts.UNUSED, ids=lambda row: f"{row.playbooks[0]}-{row.variable}")
def test_what_a_playbook_does_not_use_is_reported(row):
    host = {"inventory_hostname": "n1", row.variable: "x"}
    if row.of:
        assert conflicts.unused([host], row.playbooks[0]) == []
        host[row.of] = row.values[0]
    (sentence,) = [text for text in conflicts.unused([host], row.playbooks[0]) if text.startswith(row.variable + ",")]
    assert sentence == f"{row.variable}, set for n1, is not used by {row.playbooks[0]}: {row.instead}"
    if row.unless:
        assert conflicts.unused([{**host, row.unless: "y"}], row.playbooks[0]) == []
    assert conflicts.refused([host], "robot_image_url") == []
