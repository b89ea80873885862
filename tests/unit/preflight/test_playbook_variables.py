# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derived variables of the playbooks, as every ansible-core makes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ansible.template
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

#: Since ansible-core 2.19 a text is a template only when it is trusted.
TRUSTED = getattr(ansible.template, "trust_as_template", lambda text: text)
PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


def derived(names: list[str], variable: str, **variables: Any) -> Any:
    """A variable of the files ``vars/NAME.yml``, with these variables of the host ``n1``."""
    known: dict[str, Any] = {"inventory_hostname": "n1"}
    for name in names:
        texts = yaml.safe_load((PLAYBOOKS / "vars" / f"{name}.yml").read_text(encoding="utf-8"))
        known.update({key: TRUSTED(text) if isinstance(text, str) else text for key, text in texts.items()})
    known.update(variables)
    return ansible.template.Templar(loader=DataLoader(), variables=known).template(known[variable])


@pytest.mark.parametrize(
    ("found", "exists"),
    [
        ({}, False),
        ({"machines": []}, False),
        ({"machines": [{"name": "n2", "id": 7}]}, False),
        ({"machines": [{"name": "n1", "id": None}]}, False),
        ({"machines": [{"name": "n1", "id": 7}]}, True),
        ({"machines": [{"name": "n1", "server_number": 8}]}, True),
    ],
)
def test_a_machine_without_a_server_does_not_exist(found, exists):
    assert derived(["common", "leave"], "kubenode__exists", kubenode_found=found) is exists


def test_a_run_that_goes_on_by_itself_does_not_say_how_to_go_on():
    text = "/srv/kubenode/inventory.yml says how it is reached."
    said = {"msg": f"{text} To go on: ansible-playbook -i a kubenode.provision.node"}
    assert derived(["common"], "kubenode__reached_words", kubenode_inventory=said) == said["msg"]
    of_site = ["common", "image_url", "robot", "leave", "site"]
    assert derived(of_site, "kubenode__reached_words", kubenode_inventory=said) == text
    assert derived(of_site, "kubenode__reached_words", kubenode_inventory={"msg": ""}) == ""


@pytest.mark.parametrize(
    ("result", "check", "words"),
    [
        ({"changed": True, "unschedulable": False}, False, "uncordoned"),
        ({"changed": True, "unschedulable": False}, True, "would be uncordoned"),
        ({"changed": False, "unschedulable": False, "cordoned_by": ""}, False, ""),
        ({"changed": False, "unschedulable": True, "cordoned_by": ""}, False, "it stays cordoned, as it was before"),
        (
            {"changed": False, "unschedulable": True, "cordoned_by": "kubenode.provision/node_reboot"},
            False,
            "it stays cordoned, as it was before (by kubenode.provision/node_reboot)",
        ),
        ({"changed": False, "skipped": True}, False, ""),
        (None, False, ""),
    ],
)
def test_what_became_of_a_cordon_is_said(result, check, words):
    given = {"ansible_check_mode": check, **({} if result is None else {"kubenode_uncordoned": result})}
    assert derived(["common", "leave"], "kubenode__cordon_text", **given) == words


@pytest.mark.parametrize("name", ["image_url", "robot"])
def test_the_last_word_of_the_api_phase_counts(name):
    armed = "kubenode_armed" if name == "image_url" else "kubenode_reset"
    rearmed = "kubenode_rearmed" if name == "image_url" else "kubenode_reset_again"
    first = {armed: {"machines": [{"name": "n1", "msg": "armed"}, {"name": "n2", "msg": "armed"}]}}
    made = {"machines": [{"name": one, "msg": "made"} for one in ("n1", "n2", "n3")]}
    first.update(kubenode_created=made, kubenode_checked=made)
    again = {rearmed: {"machines": [{"name": "n1", "msg": "again"}]}}
    for more, msg in (({}, "armed"), (again, "again"), ({"inventory_hostname": "n3"}, "made")):
        assert derived(["common", name], "kubenode__api_machine", **first, **more)["msg"] == msg
    assert len(derived(["common", name], "kubenode__api_machines", **first, **again)) == 6


def tasks_with(module: str, part: Any) -> list[dict[str, Any]]:
    """The tasks of a playbook that use a module."""
    inner = part if isinstance(part, list) else list(part.values()) if isinstance(part, dict) else []
    found = [part] if isinstance(part, dict) and module in part else []
    return found + [task for one in inner for task in tasks_with(module, one)]


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"ansible_ssh_private_key_file": "keys/id"}, "{cwd}/keys/id"),
        ({"ansible_private_key_file": "id"}, "{cwd}/id"),
        ({"ansible_ssh_private_key_file": "~/.ssh/id", "ansible_private_key_file": "id"}, "~/.ssh/id"),
        ({"ansible_ssh_private_key_file": "/keys/id"}, "/keys/id"),
        ({"ansible_ssh_private_key_file": ""}, "left out"),
        ({}, "left out"),
    ],
)
def test_a_module_is_given_the_private_key_that_ssh_takes(tmp_path, monkeypatch, variables, wanted):
    """Ansible runs modules of the controller where the playbook lies, and ssh in the working directory."""
    monkeypatch.chdir(tmp_path)
    found = derived(["common"], "kubenode__private_key", omit="left out", **variables)
    assert found == wanted.format(cwd=tmp_path)


def in_batches() -> list[Any]:
    """Each play that goes batch by batch, with the plays before it and the tasks that these import."""
    found = []
    for path in sorted(PLAYBOOKS.glob("*.yml")):
        plays = yaml.safe_load(path.read_text(encoding="utf-8"))
        for place, play in enumerate(plays):
            if "serial" in play:
                found.append(pytest.param(plays[:place], play, id=path.stem))
    return found


@pytest.mark.parametrize(("before", "play"), in_batches())
def test_batches_are_planned_and_checked_before_the_play_that_goes_by_them(before, play):
    """Ansible takes ``serial: 0`` for all machines at once, and fails with an exception for a text."""
    names = set(re.findall(r"import_tasks: (tasks/[a-z_]+\.yml)", yaml.safe_dump(before)))
    first = yaml.safe_dump(before) + "".join((PLAYBOOKS / name).read_text(encoding="utf-8") for name in sorted(names))
    assert re.search(r"'(batch|reboot|site)_plan'", first)
    assert ".errors | length > 0" in first
    batches = [{"machines": ["n3", "n1"]}, {"machines": ["n2"]}]
    for site, machines, sizes in (({"batches": batches}, ["n3", "n1", "n2"], [2, 1]), (None, ["all:!all"], [1])):
        known: dict[str, Any] = {"kubenode_serial": 0, "kubenode_image_serial": 0}
        if site is not None:
            known["hostvars"] = {"localhost": {"kubenode_site": site}}
        templar = ansible.template.Templar(loader=DataLoader(), variables=known)
        assert templar.template(TRUSTED(play["hosts"])) == machines
        assert templar.template(TRUSTED(play["serial"])) == sizes


def beside_a_machine(part: Any, inherited: dict[str, Any]) -> list[str]:
    """Names of delegated tasks that inherit ``ansible_host`` of a machine, also those of files that are included."""
    if isinstance(part, list):
        return [name for one in part for name in beside_a_machine(one, inherited)]
    known = {**inherited, **(part.get("vars") or {})}
    if "delegate_to" in part:
        return [part["name"]] if known.get("ansible_host", "localhost") != "localhost" else []
    found = [name for key in ("block", "rescue", "always") for name in beside_a_machine(part.get(key, []), known)]
    for key in ("import_tasks", "include_tasks"):
        if file := part.get(f"ansible.builtin.{key}"):
            file = file["file"] if isinstance(file, dict) else file
            path = PLAYBOOKS / (file if file.startswith("tasks/") else f"tasks/{file}")
            found += beside_a_machine(yaml.safe_load(path.read_text(encoding="utf-8")), known)
    for key in ("import_role", "include_role"):
        role = part.get(f"ansible.builtin.{key}", {}).get("name", "").removeprefix("kubenode.provision.")
        if "ansible_host" in known and role and known.get("join_token_create") != {}:
            for path in (PLAYBOOKS.parent / "roles" / role / "tasks").glob("*.yml"):
                found += re.findall(r"delegate_to: .*", path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_a_task_of_the_controller_does_not_inherit_the_address_of_a_machine(path):
    """Ansible shows it as it stands there: ``localhost({{ kubenode__os_address }})``."""
    plays = yaml.safe_load(path.read_text(encoding="utf-8"))
    parts = [task for play in plays for key in ("pre_tasks", "tasks", "post_tasks") for task in play.get(key, [])]
    assert all("ansible_host" not in play.get("vars", {}) for play in plays)
    assert beside_a_machine(parts, {}) == []


@pytest.mark.parametrize(("playbook", "machine"), [("robot_inspect", "api_machine"), ("robot_release", "armed")])
def test_disks_are_looked_at_and_emptied_on_the_own_server_of_a_machine_alone(playbook, machine):
    """A wrong kubenode_address or jump host leads to the rescue of another one."""
    plays = yaml.safe_load((PLAYBOOKS / f"{playbook}.yml").read_text(encoding="utf-8"))
    (task,) = tasks_with("kubenode.provision.machine_disks", plays)
    given = TRUSTED(task["kubenode.provision.machine_disks"]["addresses"])
    for answer, wanted in (
        ({"ipv4": "192.0.2.1", "ipv6": "2001:db8::/64"}, ["192.0.2.1", "2001:db8::/64"]),
        ({"ipv4": None, "ipv6": "2001:db8::/64"}, ["2001:db8::/64"]),
    ):
        known = {f"kubenode__{machine}": answer}
        assert ansible.template.Templar(loader=DataLoader(), variables=known).template(given) == wanted


@pytest.mark.parametrize("hints", [["kubenode_root_device_hints: {serial: S1}  # sda, 4 TB sata"], []])
def test_a_look_at_disks_ends_with_the_lines_to_copy(hints):
    plays = yaml.safe_load((PLAYBOOKS / "robot_inspect.yml").read_text(encoding="utf-8"))
    (task,) = [one for one in tasks_with("ansible.builtin.debug", plays) if "vars" in one]
    known = {name: TRUSTED(text) for name, text in task["vars"].items()}
    known["kubenode_disks"] = {"table": ["sda  4 TB  sata"], "hints": hints}
    said = ansible.template.Templar(loader=DataLoader(), variables=known).template(
        TRUSTED(task["ansible.builtin.debug"]["msg"])
    )
    assert said[0] == "sda  4 TB  sata"
    assert said[2:] == hints
    assert bool(said[1:2]) is bool(hints)


#: Files of tasks that check, lock, or say how machines are reached.
GUARDS = re.compile(r"check_variables|lock_nodes|known_access|leave_check|site_check|[a-z_]+_checks")


def tasks_with_tags(tasks: list[Any], tags: set[str], guard: bool) -> list[tuple[dict[str, Any], set[str], bool]]:
    """All tasks with those of files that they import or include: the tags of each; whether a file of guards has it."""
    found = []
    for task in tasks:
        own = tags | set(task.get("tags") or [])
        for part in ("block", "rescue", "always"):
            found += tasks_with_tags(task.get(part) or [], own, guard)
        file = task.get("ansible.builtin.import_tasks") or task.get("ansible.builtin.include_tasks")
        found.append((task, own, guard))
        if file:
            name = file["file"] if isinstance(file, dict) else file
            imported = "ansible.builtin.import_tasks" in task
            inner = yaml.safe_load((PLAYBOOKS / "tasks" / Path(name).name).read_text(encoding="utf-8"))
            guards = guard or bool(GUARDS.fullmatch(Path(name).stem))
            # what is included has the tags of the play, and those that are applied to it
            found += tasks_with_tags(inner, own if imported else tags & {"of the play: always"}, guards)
    return found


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_no_tag_leaves_out_a_check_or_a_lock(path):
    """With ``--tags kernel``, too, a run refuses what contradicts itself, and machines that another run works on."""
    seen = 0
    for place, play in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))):
        of_play = {"of the play: always"} if "always" in (play.get("tags") or []) else set()
        for part in ("pre_tasks", "tasks", "post_tasks"):
            for task, tags, guard in tasks_with_tags(play.get(part) or [], of_play, False):
                lock = task.get("kubenode.provision.machine_lock", {"state": "released"}).get("state") != "released"
                refusal = re.search(r"Nothing was (changed|created)", yaml.safe_dump(task.get("ansible.builtin.fail")))
                asserts = "ansible.builtin.assert" in task and not place
                inputs = (task.get("ansible.builtin.import_role") or {}).get("tasks_from") == "inputs"
                plans = bool(re.search(r"'(batch|reboot|site|leave)_plan'", str(task.get("ansible.builtin.set_fact"))))
                if guard or lock or refusal or asserts or inputs or plans:
                    seen += 1
                    assert tags & {"always", "of the play: always"}, task["name"]
    assert seen


@pytest.mark.parametrize("name", ["node_upgrade", "node_image_snapshot"])
def test_a_step_of_base_alone_upgrades_no_node_and_makes_no_image(name):
    """Their plays have to do with the steps of base, which are tags, and go by what earlier tasks have found."""
    plays = yaml.safe_load((PLAYBOOKS / f"{name}.yml").read_text(encoding="utf-8"))
    for play in plays:
        for task, tags, _guard in tasks_with_tags(play["tasks"], set(play.get("tags") or []), False):
            if Path(str(task.get("ansible.builtin.import_tasks"))).stem in ("ask_node", "node_image_plan"):
                assert not tags, task["name"]
