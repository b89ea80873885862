# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expressions in tasks and variables of the roles base and join, as Ansible evaluates them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import kubelet
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.base_plan import base_plan
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.join_plan import join_plan
from ansible_collections.kubenode.provision.plugins.plugin_utils.role_specs import plain
from tests.unit.node.facts import READ_AT, node
from tests.unit.node_join._machines import machine, seen
from tests.unit.node_join.test_plan import CA, TOKEN
from tests.unit.node_role.templating import templated

ROLES = Path(__file__).resolve().parents[3] / "roles"


def load(name: str) -> Any:
    return yaml.safe_load((ROLES / name).read_text(encoding="utf-8"))


def expression(name: str, module: str, option: str) -> str:
    """What the first task of a file that calls this module gives it as this option."""
    found: list[str] = []

    def walk(tasks: list[dict[str, Any]]) -> None:
        for task in tasks:
            if option in (task.get(module) or {}):
                found.append(task[module][option])
            for part in ("block", "rescue", "always"):
                walk(task.get(part, []))

    walk(load(name))
    return found[0]


def base(**variables: Any) -> dict[str, Any]:
    """The variables of a play with the role base, up to the look at the machine."""
    given = {
        **load("base/defaults/main.yml"),
        **load("base/vars/main/plans.yml"),
        **load("base/vars/main/versions.yml"),
    }
    given |= {
        "ansible_run_tags": ["all"],
        "ansible_skip_tags": [],
        "ansible_play_role_names": ["kubenode.provision.base"],
    }
    given |= {"__base_info": {"node": node("debian-13")}, "__base_asked_at": str(READ_AT), "__base_sources_result": {}}
    given |= variables
    set_fact = "ansible.builtin.set_fact"
    given["__base_inputs"] = templated(expression("base/tasks/inputs.yml", set_fact, "__base_inputs"), given)
    if "refused" not in given["__base_inputs"]:
        found = next(
            task[set_fact] for task in load("base/tasks/look.yml") if "__base_preflight" in task.get(set_fact, {})
        )
        given["__base_preflight"] = templated(found["__base_preflight"], given)
    return given


def test_base_plans_what_its_filter_plans():
    given = base(base_swap="keep", base_http_proxy="http://me:hunter2@proxy.example:3128")
    inputs, facts = plain(given["__base_inputs"]), given["__base_info"]["node"]
    steps = templated("{{ __base_steps }}", given)
    assert steps == base_plan(inputs, "steps")
    assert given["__base_preflight"]["artifacts"] == ["cni-plugins", "crictl", "kubelet", "containerd", "runc"]
    assert plain(templated("{{ __base_artifacts }}", given)) == base_plan(inputs, "artifacts", node=facts)
    settings = plain(templated("{{ __base_settings }}", given))
    assert [item["id"] for item in settings] == [item["id"] for item in base_plan(inputs, "settings", node=facts)]
    assert plain(templated("{{ __base_secrets }}", given)) == base_plan(inputs, "secrets", node=facts)
    assert {item["content_secret"] for item in settings if "content_secret" in item} <= set(
        templated("{{ __base_secrets }}", given)
    )
    assert [item["id"] for item in templated("{{ __base_sources }}", given)] == ["proxy/apt"]
    assert templated("{{ __base_queries.binaries }}", given) == ["containerd", "runc", *kubelet.places("kubelet")]
    assert "kubelet" in templated("{{ __base_queries.binaries }}", {**given, "ansible_play_role_names": JOINS})
    assert templated("{{ __base_images.pull }}", given) == ["registry.k8s.io/pause:3.10.2"]


JOINS = ["kubenode.provision.base", "kubenode.provision.join"]


def test_what_was_written_before_packages_is_not_written_again():
    result = {"steps": [{"id": "proxy/apt", "step": "proxy", "changed": True}]}
    given = base(base_http_proxy="http://proxy.example:3128", __base_sources_result=result)
    assert "proxy/apt" not in [item["id"] for item in templated("{{ __base_settings }}", given)]


def test_tags_choose_steps():
    given = base(ansible_run_tags=["swap", "facts"])
    assert templated("{{ __base_steps }}", given) == ["swap", "facts"]
    assert {item["step"] for item in templated("{{ __base_settings }}", given)} == {"swap", "facts"}


def test_tags_that_are_skipped_are_refused_as_each_task_has_all_of_them():
    assert base(ansible_skip_tags=["runtime", "mine"])["__base_inputs"]["refused"] == (
        "--skip-tags has runtime, which would leave out the whole of base; set base_manage_runtime to false, or "
        "name the steps that are wanted by --tags"
    )
    assert base(ansible_skip_tags=["facts"])["__base_inputs"]["refused"].endswith(
        "of base; name the steps that are wanted by --tags"
    )
    assert "refused" not in base(ansible_skip_tags=["mine"])["__base_inputs"]


def test_what_base_refuses_is_reported_without_secrets(tmp_path):
    wrong = {"base_swap": "on", "base_http_proxy": "http://me:hunter2@x y", "base_template_path": ["nowhere"]}
    refused = base(**wrong)["__base_inputs"]["refused"]
    assert "base_swap is 'on'" in refused
    assert "hunter2" not in refused
    assert (
        "base_template_path: there is no 'nowhere'" in base(base_template_path=["nowhere"])["__base_inputs"]["refused"]
    )
    (tmp_path / "mine").mkdir()
    found = base(base_template_path=["mine"], inventory_dir=str(tmp_path))["__base_inputs"]
    assert found["template_path"] == [str(tmp_path / "mine")]


def test_join_plans_what_its_filter_plans():
    given = {**load("join/defaults/main.yml"), **load("join/vars/main.yml"), "ansible_play_role_names": JOINS[1:]}
    given |= {"join_api_server": "https://192.0.2.1:6443", "join_ca_cert": CA, "join_token": TOKEN}
    given |= {"join_labels": {"example.com/rack": "{{ rack }}"}, "rack": "r1", "ansible_check_mode": False}
    given |= {"__join_looked": {"node": machine()}, "__join_seen": seen()}
    set_fact, apply = "ansible.builtin.set_fact", "kubenode.provision.node_settings"
    given["__join_inputs"] = templated(expression("join/tasks/inputs.yml", set_fact, "__join_inputs"), given)
    inputs = plain(given["__join_inputs"])
    assert inputs["labels"] == {"example.com/rack": "r1"}
    (look,) = [task for task in load("join/tasks/present.yml") if "__join_queries" in task.get("vars", {})]
    queries = templated(look["vars"]["__join_queries"], given)
    assert set(queries) == {"binaries", "units", "files"}
    assert "/usr/local/bin/kubelet" in queries["binaries"]
    check = templated(expression("join/tasks/present.yml", set_fact, "__join_check"), given)
    assert plain(check) == join_plan(inputs, "check", node=machine(), token=TOKEN)
    assert plain(templated(expression("join/tasks/present.yml", apply, "settings"), given)) == join_plan(
        inputs, "settings", node=machine(), seen=seen(), token=TOKEN
    )
    secrets = templated(expression("join/tasks/present.yml", apply, "secrets"), given)
    assert TOKEN in secrets["bootstrap-kubeconfig"]
    given["__join_record"] = {}
    assert plain(templated(expression("join/tasks/leave.yml", apply, "settings"), given)) == join_plan(
        inputs, "absent", seen={"record": {}}
    )
    assert plain(templated(expression("join/tasks/forget.yml", apply, "settings"), given)) == join_plan(
        inputs, "forgotten"
    )
    given["join_timeout"] = 1
    refused = templated(expression("join/tasks/inputs.yml", set_fact, "__join_inputs"), given)["refused"]
    assert refused == "join_timeout: 1 must be from 5 to 86400"
