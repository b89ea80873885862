# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of the user's come before those of the roles; drop-ins come beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import templates
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.base_plan import base_plan
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.join_plan import join_plan
from tests.unit.node.facts import READ_AT, data, node
from tests.unit.node_join._machines import machine, seen
from tests.unit.node_join.test_plan import GIVEN
from tests.unit.node_role.templating import templated

CHECKOUT = Path(__file__).resolve().parents[3]
EXTENDED = """\
{% extends "base/templates/kubelet.service.j2" %}
"""


def taken(**variables: Any) -> dict[str, Any]:
    return base_plan(variables, "inputs", versions=data())


def planned(inputs: dict[str, Any], facts: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in base_plan(inputs, "settings", node=facts or node("debian-13"))}


def folder(path: Path, **texts: str) -> list[str]:
    for name, text in texts.items():
        (path / (name.replace("_", ".") + ".j2")).write_text(text, encoding="utf-8")
    return [str(path)]


def test_a_template_of_the_user_comes_first(tmp_path):
    text = "# {{ base_swap }} {{ node.arch }} {{ kubelet }} {{ runtime_units }}\n"
    plan = planned(taken(template_path=folder(tmp_path, kubelet_service=text), swap="keep"))
    assert plan["kubelet/unit"]["content"] == "# keep amd64 /usr/local/bin/kubelet containerd.service\n"
    # all others are the role's
    assert plan["runtime/unit"] == planned(taken())["runtime/unit"]


def test_a_template_may_take_the_roles_own_as_its_parent(tmp_path):
    plan = planned(taken(template_path=folder(tmp_path, kubelet_service=EXTENDED)))
    assert plan["kubelet/unit"] == planned(taken())["kubelet/unit"]


def test_the_first_folder_that_has_a_template_counts(tmp_path):
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        paths += folder(tmp_path / name, crictl_yaml=f"{name}\n")
    assert planned(taken(template_path=paths))["runtime/crictl"]["content"] == "one\n"


def test_relative_folders_are_looked_for_beside_the_inventory(tmp_path):
    (tmp_path / "mine").mkdir()
    folder(tmp_path / "mine", crictl_yaml="mine\n")
    given = {"base_template_path": ["mine"]}
    inputs = base_plan(given, "inputs", versions=data(), inventory_dir=str(tmp_path))
    assert inputs["template_path"] == [str(tmp_path / "mine")]
    refused = base_plan(given, "inputs", versions=data(), fail=False)["refused"]
    assert refused.startswith("base_template_path: there is no 'mine'; looked at ")


@pytest.mark.parametrize(
    ("template", "text", "message"),
    [
        ("kubelet_service", "{{ missing }}", "base_template_path: kubelet.service.j2: 'missing' is undefined"),
        ("kubelet_service", '{% extends "kubelet.service.j2" %}', "base_template_path: kubelet.service.j2: max"),
        ("kubelet_service", "{% if %}", "base_template_path: kubelet.service.j2, line 1: "),
        ("kubelet_service", "{{ 1 + 'a' }}", "base_template_path: kubelet.service.j2: unsupported operand"),
        ("docker-daemon_json", "{", "base_template_path: docker-daemon.json.j2: no JSON: "),
        ("containerd-config_toml", "version = ", "base_template_path: containerd-config.toml.j2: no TOML: "),
    ],
)
def test_a_template_that_fails_is_refused_before_anything_is_changed(tmp_path, template, text, message):
    runtime = "docker" if template.startswith("docker") else "containerd"
    inputs = taken(template_path=folder(tmp_path, **{template: text}), container_runtime=runtime)
    steps = base_plan(inputs, "steps")
    (refusal,) = base_plan(inputs, "preflight", node=node("debian-13"), steps=steps, before=READ_AT)["refusals"][-1:]
    assert refusal.startswith(message)
    with pytest.raises(ValueError, match=r"base_template_path"):
        planned(inputs)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="file is no folder"):
        taken(template_path=[str(tmp_path / "file")])


def test_the_kubelets_configuration_is_merged_over_the_template(tmp_path):
    text = "maxPods: 7\nclusterDomain: {{ join_cluster_domain | to_json }}\nnoSuchField: 1\n"
    given = {**GIVEN, "template_path": folder(tmp_path, **{"kubelet-config_yaml": text})}
    given["kubelet_config"] = {"maxPods": 8}
    inputs = join_plan(given, "inputs")
    saw = seen(need_bootstrap=False)
    plan = {item["id"]: item for item in join_plan(inputs, "settings", node=machine(), seen=saw)}
    config = plan["join/config"]["content"]
    assert "maxPods: 8" in config
    assert "clusterDomain: cluster.local" in config
    # the table of this minor knows it not
    assert "noSuchField" not in config


@pytest.mark.parametrize(
    ("template", "text", "message"),
    [
        ("kubelet-config_yaml", "a: [", "kubelet-config.yaml.j2: no YAML: "),
        ("kubelet-config_yaml", "- a", "kubelet-config.yaml.j2: it is no dictionary of fields"),
        ("kubelet_env", "{{ x }}", "kubelet.env.j2: 'x' is undefined"),
    ],
)
def test_a_template_of_join_that_fails_is_refused_by_the_check(tmp_path, template, text, message):
    given = {**GIVEN, "template_path": folder(tmp_path, **{template: text})}
    assert message in join_plan(given, "check", node=machine(), fail=False)["refused"]


DROP_INS = {"kubelet.service": {"50-nice.conf": "[Service]\nNice=-5\n"}, "containerd.service": {"a.conf": "[Unit]\n"}}


def test_drop_ins_are_written_and_restart_their_units():
    plan = planned(taken(unit_drop_ins=DROP_INS))
    written = plan["kubelet/drop-in-kubelet.service/50-nice.conf"]
    assert written["path"] == "/etc/systemd/system/kubelet.service.d/50-nice.conf"
    assert written["content"].endswith("(base); changes are overwritten.\n[Service]\nNice=-5\n")
    assert written["id"] in plan["kubelet/kubelet-unit"]["restart_on"]
    assert "runtime/drop-in-containerd.service/a.conf" in plan["runtime/containerd-unit"]["restart_on"]
    order = list(plan)
    assert order.index(written["id"]) < order.index("kubelet/kubelet-unit")


def test_a_drop_in_that_is_no_longer_wanted_is_removed():
    record = {"unit_drop_ins": {"kubelet.service": ["50-nice.conf", "60-other.conf"]}}
    later = taken(unit_drop_ins={"kubelet.service": {"60-other.conf": "[Service]\n"}})
    plan = planned(later, node("debian-13", base=record))
    assert plan["kubelet/drop-in-kubelet.service/50-nice.conf"]["kind"] == "absent"
    assert plan["kubelet/drop-in-kubelet.service/60-other.conf"]["kind"] == "file"
    assert '"unit_drop_ins": {\n    "kubelet.service": [\n      "60-other.conf"' in plan["facts/base"]["content"]
    assert "unit_drop_ins" not in planned(taken())["facts/base"]["content"]


@pytest.mark.parametrize(
    ("drop_ins", "message"),
    [
        (
            {"sshd.service": {"a.conf": ""}},
            "base_unit_drop_ins is 'sshd.service'; use one of containerd.service, kubelet",
        ),
        ({"kubelet.service": ["a"]}, "base_unit_drop_ins.kubelet.service is ['a']; use {name of a file: its content}"),
        ({"kubelet.service": {"../a.conf": ""}}, "base_unit_drop_ins.kubelet.service is '../a.conf'; use a name of"),
        ({"kubelet.service": {"10-kubeadm.conf": ""}}, "base_unit_drop_ins.kubelet.service is '10-kubeadm.conf'"),
        (
            {"kubelet.service": {"a.conf": 1}},
            "base_unit_drop_ins.kubelet.service.a.conf is 1; use the text of a drop-in",
        ),
        ("x", "base_unit_drop_ins is 'x'; use a dictionary"),
        *(
            (
                {"kubelet.service": {"50-nice.conf": text}},
                "begin with the section that the lines are for, such as [Service]",
            )
            for text in ("Nice=-5\n", "# mine\n\n Nice=-5\n[Service]\n", "x")
        ),
    ],
)
def test_what_is_no_drop_in_is_refused(drop_ins, message):
    assert message in base_plan({"unit_drop_ins": drop_ins}, "inputs", versions=data(), fail=False)["refused"]


@pytest.mark.parametrize("text", ["", "\n", "# a\n; b\n\n [Service]\nNice=-5\n", "# nothing yet", "[Unit]"])
def test_a_drop_in_may_begin_with_comments_or_have_nothing(text):
    taken(unit_drop_ins={"kubelet.service": {"a.conf": text}})


def test_a_template_that_no_role_has_is_a_warning(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(templates, "warn", said.append)
    for name, text in {
        "kubelet.service.j2": "{% include 'part.j2' %}", "part.j2": "x", "kubelet.env.j2": "y", "notes.txt": "z",
        "kubelet.services.j2": "", "other.j2": "",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    base_plan({"template_path": [str(tmp_path)]}, "inputs", versions=data())
    assert [text.partition(";")[2].partition(",")[0] for text in said] == [
        " did you mean kubelet.service.j2?",
        " the roles have containerd-config.toml.j2",
    ]
    assert said[0].startswith(f"base_template_path: {tmp_path}/kubelet.services.j2 is never used, as no role has")


def test_the_documents_name_every_template():
    for role in ("base", "join"):
        text = (CHECKOUT / f"docs/{role}.md").read_text(encoding="utf-8")
        found = list((CHECKOUT / f"roles/{role}/templates").iterdir())
        assert [path.name for path in found if f"{path.name}`" not in text] == []


def test_ansible_renders_the_same():
    """The roles' templates use nothing that Ansible's own renderer reads in another way."""
    given = {"kubelet": "/usr/local/bin/kubelet", "runtime_units": "containerd.service", "watchdog": 30}
    text = (CHECKOUT / "roles/base/templates/kubelet.service.j2").read_text(encoding="utf-8")
    inputs = {name: role_specs.default(option) for name, option in role_specs.options("base").items()}
    ours = templates.render("base", "kubelet.service.j2", inputs, **given)
    theirs = templated(text, {**{f"base_{name}": value for name, value in inputs.items()}, **given})
    assert theirs in (ours, ours.rstrip("\n"))
