# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a step says while machines are written names the variables that the user has set, and no option of a module."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.action import image_url_check, installimage_check
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import machine_specs, specification
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import flow, install_plan, machine_install
from tests.unit.rescue.test_install_plan import Host, whole

NAMES = machine_specs.variable_names("machine_install")


@pytest.mark.parametrize(
    ("step", "text", "words"),
    [
        ("image_url_command", "it did not end. Set timeout higher", "Set kubenode_command_timeout higher"),
        ("machine_boot", "not verified, as proof: port says", "as kubenode_proof: port says"),
        ("machine_disks", "disk sda is failing: set health: ignore", "set kubenode_disk_health: ignore"),
        ("pre_provision_command", "Set timeout higher", "Set kubenode_pre_provision_timeout higher"),
        ("robot_installimage", "set require_digest: false", "set kubenode_require_digest: false"),
    ],
)
@pytest.mark.parametrize("raises", [False, True])
def test_a_step_that_fails_names_variables(monkeypatch, step, text, words, raises):
    def take(_host: Any, _given: Any) -> dict[str, Any]:
        if raises:
            raise AnsibleActionFail(f"n1: {text}")
        return {"failed": True, "msg": text, "changed": False, "warnings": [text]}

    monkeypatch.setitem(machine_install.STEPS, step, (dict, take))
    found = machine_install.run(Host(), whole({"name": "n1", step: {}}), NAMES)
    assert found["failed"]
    assert words in found["msg"]
    assert [words in warning for warning in found["warned"]] == ([] if raises else [True])
    # options of a play of a user's own are named as they are
    assert text in machine_install.run(Host(), whole({"name": "n1", step: {}}))["msg"]


@pytest.mark.parametrize(
    ("step", "text", "words"),
    [
        ("robot_installimage", "root_devices: 2 disks are named", "kubenode_root_device_hints: 2 disks are named"),
        ("image_url_command", 'root_devices "sda sdb": name one', 'kubenode_root_device_hints "sda sdb": name one'),
    ],
)
def test_disks_that_hints_chose_are_named_by_the_hints(monkeypatch, step, text, words):
    chosen = {"root_devices": ["sda", "sdb"], "consent": "empty", "to_empty": [], "found_empty": []}
    times = {"boot_state": "BootingToRescue", "boot_state_since": "2026-01-01T00:00:00Z"}
    done = {"failed": False, "changed": False, "msg": "", **chosen, **times}
    monkeypatch.setitem(machine_install.STEPS, "machine_disks", (dict, lambda _host, _given: done))

    def refuse(_host: Any, _given: Any) -> dict[str, Any]:
        raise AnsibleActionFail(f"n1: {text}")

    monkeypatch.setitem(machine_install.STEPS, step, (dict, refuse))
    monkeypatch.setattr(machine_install, "_options", lambda _specification, given: given)
    steps = whole({"name": "n1", "machine_disks": {}, step: {}})
    assert words in machine_install.run(Host(), steps, NAMES)["msg"]
    assert text in machine_install.run(Host(), steps)["msg"]


@pytest.mark.parametrize(("size", "seconds"), [(3, 2.0), (11, 3.0), (49, 12.5), (999, 15.0)])
def test_the_programs_of_many_machines_are_looked_at_less_often(size, seconds):
    machines = [whole({"image_url_command": {}}) for _number in range(size)]
    machines[0]["image_url_command"] = {"poll": 7.0}
    machine_install.poll_by_size([*machines, whole({"machine_boot": {}})])
    assert {one["image_url_command"]["poll"] for one in machines} == {7.0, seconds}


def test_a_task_for_one_step_names_variables_too():
    result = flow.named(
        {"msg": "set health: check", "warnings": ["set health: check"]}, {"health": "kubenode_disk_health"}
    )
    assert result == {"msg": "set kubenode_disk_health: check", "warnings": ["set kubenode_disk_health: check"]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"swraid": 1},
            "kubenode_root_device_hints: RAID level 1 needs at least 2 disks, and 1 is named; name more disks, choose "
            "another kubenode_swraid_level, or set kubenode_swraid: 0",
        ),
        (
            {"root_device_hints": {"raid": {"wwn": ["a", "b"]}}, "swraid": 0},
            "kubenode_root_device_hints: 2 disks are named, but one is used without software RAID; set "
            "kubenode_swraid: 1, or name one disk",
        ),
        (
            {"autosetup": {"HOSTNAME": "x"}},
            "autosetup.HOSTNAME: it follows from an option of its own; set kubenode_hostname",
        ),
        ({"autosetup": {"DRIVE1": "x"}}, "it follows from an option of its own; set kubenode_root_device_hints"),
        ({"autosetup": {"PART": "x"}}, "it follows from an option of its own; set kubenode_partitions"),
    ],
)
def test_the_check_of_an_installation_names_variables(options, words):
    found = checked(options)
    assert words in found["msg"]
    assert "root_devices" not in found["msg"].replace("kubenode_root_devices", "")


def checked(options: dict[str, Any]) -> Any:
    image = {"name": "Debian-1300-trixie-amd64-base.tar.gz"}
    one = {"name": "n1", "image": image, "root_device_hints": {"serial": "S1"}, **options}
    given = {"machines": [one], "variables": machine_specs.variable_names("installimage_check")}
    task = SimpleNamespace(args=given, async_val=0, action="installimage_check", check_mode=True, diff=False)
    task.get_search_path = list
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return installimage_check.ActionModule(task, connection, SimpleNamespace(), None, None, None).run(None, {})


def findings(action: Any, playbook: str, **variables: Any) -> list[str]:
    """What the check of a playbook says of a host."""
    host = {"inventory_hostname": "n1", **variables}
    purpose = "installimage_check" if playbook == "robot_installimage" else "image_url_check"
    given = {
        "variables": machine_specs.variable_names(purpose),
        "machines": machine_specs.machine_specs([host], purpose),
        "steps": install_plan.plan([host], playbook, None, "/nowhere/at/all"),
    }
    task = SimpleNamespace(args=given, async_val=0, action=purpose, check_mode=True, diff=False)
    task.get_search_path = list
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    module = action.ActionModule(task, connection, SimpleNamespace(), None, None, None)
    found = module.run(None, {"hostvars": {"n1": host}})
    return found.get("msg", "").splitlines()[1:]


@pytest.mark.parametrize(
    ("action", "playbook"), [(installimage_check, "robot_installimage"), (image_url_check, "robot_image_url")]
)
def test_missing_hints_are_said_with_everything_else(action, playbook):
    image = {"name": "Debian-1300-trixie-amd64-base.tar.gz"}
    said = findings(action, playbook, kubenode_drift="never", kubenode_image=image)
    missing = "missing; name the disks to write, kubenode.provision.robot_inspect lists them"
    assert f"- n1: kubenode_root_device_hints: {missing}" in said
    assert [one for one in said if "kubenode_drift" in one]


@pytest.mark.parametrize("variable", ["kubenode_image_url_command", "kubenode_image_url"])
def test_a_value_of_a_wrong_kind_is_one_finding(variable):
    good = {
        "kubenode_root_devices": ["sda"],
        "kubenode_image_url": "https://images.example/d.raw",
        "kubenode_image_url_command": "image-url-command-raw-disk",
    }
    (said,) = findings(image_url_check, "hcloud_image_url", **{**good, variable: ["a"]})
    assert said.startswith(f"- n1: {variable} ")
    assert said.endswith(": give a text, not a list")


def test_every_step_has_names_for_what_it_takes():
    assert set(NAMES) == set(machine_install.STEPS)
    for step, names in NAMES.items():
        assert names == specification.of_step(step)
        assert set(names) <= set(machine_install.STEPS[step][0]())


def test_the_playbooks_give_the_names_to_every_task_of_a_step(playbook_tasks):
    steps = "machine_install|" + "|".join(machine_install.STEPS)
    wrong = [
        path.name
        for path in playbook_tasks
        for module, rest in re.findall(rf"kubenode\.provision\.({steps}):\n((?: +.*\n)+)", path.read_text())
        if f"'{module}' | kubenode.provision.internal('variable_names')" not in rest and "expect: rescue" not in rest
    ]
    assert wrong == []


def test_a_live_image_names_the_variables_of_its_options():
    names = machine_specs.variable_names("preprov_image_build")
    assert names.pop("hosts[].name") == names["name"]
    options = image_build.argument_spec()
    known = {*options, *options["hosts"]["options"]}
    assert {*names} - known == {"server", "serial"}, "these are the playbook's alone"
    assert {option for option, name in names.items() if name != f"kubenode_image_{option}"} == set()


@pytest.fixture
def playbook_tasks():
    return sorted((Path(__file__).resolve().parents[3] / "playbooks").rglob("*.yml"))
