# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's variables are the same in its defaults, in what its filters get, in its tags and in docs/base.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.modules import node_cleanup
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_inputs, base_plan
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.base_plan import base_plan as filter_plan
from tests.unit.node_role.templating import templated

CHECKOUT = Path(__file__).resolve().parents[3]
ROLE = CHECKOUT / "roles/base"


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


DEFAULTS = load("defaults/main.yml")
DOCUMENT = (CHECKOUT / "docs/base.md").read_text(encoding="utf-8")


def test_every_variable_is_the_plan_s_or_a_task_s():
    of_plan = {"base_" + name for name in filter_plan({}, "variables")}
    tasks = "".join(path.read_text(encoding="utf-8") for path in (ROLE / "tasks").glob("*.yml"))
    assert of_plan < set(DEFAULTS)
    assert {name for name in set(DEFAULTS) - of_plan if name not in tasks} == set()
    names, variables = (load("vars/main/plans.yml")[name] for name in ("__base_names", "__base_variables"))
    given = {**DEFAULTS, "base_swap": "{{ kept }}", "kept": "keep", "__base_names": names, "made": variables}
    made = templated("{{ made }}", given)
    assert made == {**{name[len("base_") :]: DEFAULTS[name] for name in of_plan}, "swap": "keep"}


def test_the_defaults_are_accepted():
    variables = {name[len("base_") :]: value for name, value in DEFAULTS.items()}
    assert (
        base_inputs.normalised(variables, load("vars/main/versions.yml")["base_versions"])["kubernetes_minor"] == "1.37"
    )


def test_every_switch_is_a_step_with_a_tag():
    tasks = load("tasks/main.yml")
    switches = {name[len("base_manage_") :] for name in DEFAULTS if name.startswith("base_manage_")}
    assert switches == set(base_plan._MAKERS) - {"facts"}
    (apply,) = [task for task in tasks if task.get("ansible.builtin.import_tasks") == "apply.yml"]
    assert set(apply["tags"]) == set(base_plan._MAKERS) | set(base_plan.OTHERS)
    for step in switches:
        assert f"`{step}`" in DOCUMENT


def test_what_prebaking_removes_is_what_the_module_removes_by_default():
    default = node_cleanup.arguments()["remove"]["default"]
    assert DEFAULTS["base_prebake_clean"] == default
    assert set(default) == set(cleanup.ITEMS) - set(cleanup.ASKED)


def test_the_document_names_no_variable_that_is_not_there():
    named = set(re.findall(r"\bbase_[a-z0-9_]*[a-z0-9]", DOCUMENT)) - {"base_manage", "base_changed_steps"}
    assert named <= set(DEFAULTS)


# --- switches of the roles are read as the command line gives them: `-e name=false` is a text, which is no condition


ROLES = Path(__file__).resolve().parents[3] / "roles"
SPECS = {path.parents[1].name: path for path in ROLES.glob("*/meta/argument_specs.yml")}


def switches(role: str) -> list[str]:
    """The variables of a role that are true or false."""
    options = yaml.safe_load(SPECS[role].read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
    return [name for name, option in options.items() if option["type"] == "bool"]


def bare(name: str, text: str) -> list[str]:
    """The lines that use a switch otherwise than as a whole value, which a filter or module reads, or by `bool`."""
    found = []
    for line in text.splitlines():
        if not re.search(rf"\b{name}\b", line) or line.strip() == f"- {name}" or line.lstrip().startswith("#"):
            continue
        left = re.sub(rf"\b{name} *\| *bool\b|^ *[a-z0-9_]+: \"{{{{ {name} }}}}\"$", "", line)
        if re.search(rf"\b{name}\b", left):
            found.append(line.strip())
    return found


@pytest.mark.parametrize("role", sorted(SPECS))
def test_no_switch_is_a_bare_condition(role):
    files = [path for folder in ("tasks", "vars") for path in (ROLES / role / folder).rglob("*.yml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert [line for name in switches(role) for line in bare(name, text)] == []


def test_what_is_bare():
    assert bare("x_on", "when: x_on or y") == ["when: x_on or y"]
    assert bare("x_on", 'a: "{{ x_on }}"\n  when: x_on | bool\n# x_on\n- x_on') == []
