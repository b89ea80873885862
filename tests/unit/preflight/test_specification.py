# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specification of the playbooks' variables says what the playbooks and modules do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.filter import preprov_images
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import (
    awx,
    machine_specs,
    site,
    specification,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import install_plan
from tests.unit.docs import plugin_specs

CHECKOUT = Path(__file__).resolve().parents[3]
PLAYBOOKS = CHECKOUT / "playbooks"
VARIABLES = specification.variables()
WRITING = ("hcloud_image_url", "robot_image_url", "robot_installimage")
#: Named by a task or a filter that serves several playbooks, and without effect in this one; or set for later jobs.
FOR_NOTHING = {
    "hcloud_image_name": "kubenode_known_machines kubenode_placeholder_image",
    "hcloud_image_url": """kubenode_image kubenode_image_name kubenode_image_newest kubenode_known_machines
        kubenode_user_data kubenode_user_data_file""",
    "hcloud_delete": "kubenode_reboot_again kubenode_ssh_keys",
    "node_reboot": "kubenode_ssh_public_key kubenode_ssh_public_key_file",
    "node_upgrade": "kubenode_reboot_again",
    "robot_image_url": """kubenode_image kubenode_known_machines kubenode_location kubenode_root_devices
        kubenode_server_type""",
    "robot_inspect": """kubenode_image kubenode_image_url kubenode_image_url_command kubenode_location kubenode_proof
        kubenode_server_type""",
    "robot_installimage": """kubenode_device_strings kubenode_image_url kubenode_image_url_command
        kubenode_known_machines kubenode_location kubenode_server_type""",
    "robot_release": "kubenode_reboot_again",
}
#: Read where no task names it: by the events of report/run_events.py and by the callback provision_report.
ELSEWHERE = {
    **dict.fromkeys(
        WRITING, "kubenode_event_object kubenode_notify_secret kubenode_notify_timeout kubenode_notify_url"
    ),
    "hcloud_image_name": "kubenode_notify_secret kubenode_notify_timeout kubenode_notify_url",
}
#: Their temporary machines take what hcloud_image_url takes.
IMAGES = ("node_image_snapshot", "node_image_tarball")


def texts(name: str, seen: set[str]) -> Iterator[str]:
    """The files that a playbook is made of, without their comments."""
    if name in seen:
        return
    seen.add(name)
    lines = (PLAYBOOKS / name).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.strip().startswith("#"))
    yield text
    for one, other in re.findall(
        r"(?:import_tasks|include_tasks|import_playbook):\s*(\S+\.yml)|-\s+(vars/\S+\.yml)", text
    ):
        (path, *_more) = [place for place in (one or other, f"tasks/{one}") if (PLAYBOOKS / place).is_file()]
        yield from texts(path, seen)


def used(playbook: str) -> set[str]:
    """The variables of users that a playbook reads."""
    text = "\n".join(texts(f"{playbook}.yml", set()))
    names = set(re.findall(r"\bkubenode_[a-z][a-z0-9_]*", text))
    for purpose in re.findall(r"machine_specs\('(\w+)'\)", text):
        names.update(*specification.of_machines(purpose).values())
    if "install_plan(" in text:
        names.add("kubenode_adopt")  # of a system that was found
        hosts = [{"inventory_hostname": "n", **dict.fromkeys(VARIABLES, "x")}]
        (machine,) = install_plan.plan(hosts, playbook if playbook in WRITING else WRITING[0], None, "/dir")
        for step, of_step in install_plan.variables().items():
            names |= {variable for option, variable in of_step.items() if option in machine.get(step, {})}
        names.add("kubenode_registry_token")
    if "preprov_images(" in text:
        names |= {f"kubenode_image_{name}" for name in (*preprov_images.COMMON, *preprov_images.OWN)}
        names |= {f"kubenode_image_{name}_file" for name in preprov_images.IN_FILES}
    if "'awx_plan'" in text:
        names |= {one.name for one in specification.taken_by(awx.PLAYBOOK)}  # it goes through them all
    return names & set(VARIABLES)


@pytest.mark.parametrize("playbook", sorted(specification.playbooks() - {*IMAGES, site.SITE}))
def test_a_playbook_reads_what_it_takes_and_nothing_else(playbook):
    taken = {one.name for one in specification.taken_by(playbook)}
    for_nothing = set(FOR_NOTHING.get(playbook, "").split())
    elsewhere = set(ELSEWHERE.get(playbook, "").split())
    assert used(playbook) - for_nothing - taken == set()
    assert taken - used(playbook) == elsewhere
    assert for_nothing - used(playbook) == set()


def test_site_takes_what_the_playbooks_take_whose_tasks_it_runs():
    own = {"kubenode_serial", "kubenode_node_name", "kubenode_pipelining"}
    ways = {one.name for way in site.WAYS for one in specification.taken_by(way)}
    assert {one.name for one in specification.taken_by(site.SITE)} == ways | own
    assert own <= set().union(*(re.findall(r"\bkubenode_[a-z_]+", text) for text in texts("site.yml", set())))


@pytest.mark.parametrize("playbook", IMAGES)
def test_a_playbook_for_images_takes_only_what_is_read(playbook):
    """It also reads what it has set itself for its temporary machines."""
    assert {one.name for one in specification.taken_by(playbook)} - used(playbook) == set()


@pytest.mark.parametrize("variable", VARIABLES.values(), ids=lambda one: one.name)
def test_an_entry_is_whole(variable):
    assert re.fullmatch(r"kubenode_[a-z0-9_]+", variable.name)
    assert variable.says
    assert not variable.says.endswith(".")
    assert variable.type in ("bool", "int", "str", "path", "list", "dict", "raw")
    assert bool(variable.elements) == (variable.type == "list")
    assert bool(variable.type_says) == (variable.type == "raw")
    assert (CHECKOUT / "docs" / f"{variable.page}.md").is_file()
    assert not [page for page in variable.pages if not (CHECKOUT / "docs" / f"{page}.md").is_file()]
    elsewhere = {*variable.instead, *variable.refused}
    assert not {*variable.playbooks, *elsewhere} - {path.stem for path in PLAYBOOKS.glob("*.yml")}
    # a playbook takes it, warns of it, refuses it, or it is of another subject
    assert not {*variable.playbooks} & elsewhere
    assert not {*variable.required, *variable.once, *variable.defaults} - {*variable.playbooks}
    for value in (variable.default, *variable.defaults.values()):
        assert value is None or not specification.wrong_kind(variable, value)
    assert variable.default is None or not variable.default_says


def module_options(module: str) -> dict[str, Any]:
    """The options of a module, as it documents them."""
    document, _examples, _returned = plugin_specs.documented(module)
    return dict(document["options"])


STEPS = sorted({step for one in VARIABLES.values() for step in one.step})
TASKS = sorted({module for one in VARIABLES.values() for module in one.option})


@pytest.mark.parametrize("step", STEPS)
def test_a_variable_becomes_an_option_that_the_step_has(step):
    known: dict[str, Any] = getattr(options, f"{step}_spec")()
    for option, name in specification.of_step(step).items():
        assert option in known, name
        agrees(VARIABLES[name], known[option])


@pytest.mark.parametrize("module", TASKS)
def test_a_variable_becomes_an_option_that_the_module_has(module):
    known = module_options(module)
    for option, name in specification.of_options(module).items():
        assert option in known, name
        if module != "hcloud_rescue" or option != "rescue_timeout":
            agrees(VARIABLES[name], known[option])


@pytest.mark.parametrize("purpose", [one for one in machine_specs.PURPOSES if one not in ("access", "wanted")])
def test_a_variable_becomes_a_key_of_the_machines_of_a_module(purpose):
    known = module_options(purpose)["machines"].get("suboptions")
    if known is None:  # it takes what other modules return, too
        assert purpose.startswith("robot_")
        return
    assert {key for key in specification.of_machines(purpose) if key not in known} == set()


def agrees(variable: specification.Variable, option: dict[str, Any]) -> None:
    """Default and choices are those of the option, where it has some."""
    defaults = [variable.default, *variable.defaults.values()]
    if option.get("default") not in (None, False, [], {}) and not variable.default_says:
        assert option["default"] in defaults, (variable.name, option["default"])
    if option.get("choices") and variable.type != "bool":
        assert set(option["choices"]) == set(variable.choices), variable.name


def test_no_two_variables_become_one_option_of_a_step():
    for step in STEPS:
        taking = [one.step[step] for one in VARIABLES.values() if step in one.step]
        assert len(taking) == len(set(taking)), step
