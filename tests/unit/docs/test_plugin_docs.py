# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation, examples and code of every module say the same."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.docs import plugin_specs
from tests.unit.docs.plugin_specs import compare

GROUP = "kubenode"
RUNTIME = yaml.safe_load((plugin_specs.CHECKOUT / "meta/runtime.yml").read_text(encoding="utf-8"))
# the group's names too, so that a module of the group that does not exist fails instead of being left out
MODULES = sorted({*plugin_specs.module_names(), *RUNTIME["action_groups"][GROUP]})


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    """Examples may leave credentials to the environment."""
    monkeypatch.setenv("HCLOUD_TOKEN", "0" * 64)


def test_every_module_is_in_the_action_group():
    path = plugin_specs.CHECKOUT / "meta/runtime.yml"
    head, line, _names = path.read_text(encoding="utf-8").partition(f"  {GROUP}:\n")
    compare(path, head + line + "".join(f"    - {name}\n" for name in plugin_specs.module_names()))


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_accepted(name):
    _doc, examples, _returned = plugin_specs.documented(name)
    code = plugin_specs.accepted(name)
    tasks = list(plugin_specs.example_tasks(examples, name))
    assert tasks, f"no example uses kubenode.provision.{name}"
    assert [plugin_specs.example_errors(arguments, code) for arguments in tasks] == [[] for _task in tasks]


@pytest.mark.parametrize("name", MODULES)
def test_documented_options_are_the_code_s(name):
    doc, _examples, _returned = plugin_specs.documented(name)
    code = plugin_specs.accepted(name)
    assert plugin_specs.spec_differences(doc["options"], code["argument_spec"]) == []


@pytest.mark.parametrize("name", MODULES)
def test_attributes_are_declared_and_true(name):
    doc, _examples, _returned = plugin_specs.documented(name)
    attributes = doc["attributes"]
    assert "kubenode.provision." + GROUP in attributes["action_group"]["membership"]
    assert attributes["diff_mode"]["support"] in ("full", "partial", "none", "N/A")
    supports = plugin_specs.accepted(name).get("supports_check_mode", False)
    assert (attributes["check_mode"]["support"] in ("full", "partial")) == supports


@pytest.mark.parametrize("name", MODULES)
def test_results_are_documented(name):
    doc, _examples, returned = plugin_specs.documented(name)
    assert returned, f"RETURN of {name} is empty"
    assert plugin_specs.undocumented_returns(returned) == []
    assert doc["version_added"]


@pytest.mark.parametrize("name", MODULES)
def test_secrets_are_no_log(name):
    spec = plugin_specs.accepted(name)["argument_spec"]
    secret = [option for option in spec if option.endswith(("token", "password", "bootstrap_data"))]
    assert [option for option in secret if spec[option].get("no_log") is not True] == []


def test_differences_are_found():
    doc = {"a": {"type": "int", "default": 1}, "b": {"suboptions": {"c": {}}, "type": "dict"}, "d": {}}
    code = {"a": {"type": "int", "default": 2}, "b": {"type": "dict", "options": {"c": {"required": True}}}, "e": {}}
    assert plugin_specs.spec_differences(doc, code) == [
        "e is not documented",
        "d is documented only",
        "a: default is 1 in the documentation, 2 in the code",
        "b.c: required is False in the documentation, True in the code",
    ]


def test_wrong_examples_are_found():
    options = {"name": {"type": "str", "required": True}, "count": {"type": "int"}}
    code = {"argument_spec": {"machines": {"type": "list", "elements": "dict", "options": options}}}
    assert plugin_specs.example_errors({"machines": [{"name": "{{ x }}", "count": "{{ y }}"}]}, code) == []
    assert plugin_specs.example_errors({"machines": [{"count": "many", "name": "a"}]}, code)
    assert plugin_specs.example_errors({"machines": [{}]}, code)
    assert plugin_specs.example_errors({"machine": []}, code)
