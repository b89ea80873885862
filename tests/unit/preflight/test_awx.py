# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook `awx` makes: each name is made before it is used, and nothing is made of what cannot be right."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import awx, specification

SECRETS = {
    "hcloud": {"token": "t0ken"},
    "robot": {"user": "u", "password": "pa55word"},
    "registry": {"token": ""},
    "kubeconfig": {"kubeconfig": "apiVersion: v1"},
    "ssh": {"ssh_key_data": "key"},
}
WISH = {"kubenode_awx_image": "registry.example.com/ee:1", "kubenode_awx_project_url": "https://git.example.com/p.git"}

TASKS = yaml.safe_load((Path(__file__).resolve().parents[3] / "playbooks/tasks/awx.yml").read_text(encoding="utf-8"))


def plan(**more):
    return awx.awx_plan({**WISH, **{f"kubenode_awx_{name}": value for name, value in more.items()}}, SECRETS)


def errors(**more):
    return "; ".join(plan(**more)["errors"])


def templates(found):
    return {one["name"].rpartition(" ")[2]: one for one in found["templates"]}


def test_nothing_waits_once_all_is_there_and_all_but_the_first_where_nothing_is():
    found = plan(credentials=["hcloud", "robot", "kubeconfig", "ssh"])
    assert found["errors"] == []
    assert awx.awx_waiting(found, awx.awx_lists(found)) == []
    waiting = awx.awx_waiting(found, {})
    rest = {
        part: [f"{part}/{one['name']}" for one in found[part]] for part in ("credentials", "templates", "workflows")
    }
    assert {text for texts in rest.values() for text in texts} < set(waiting)
    assert "project/kubenode" in waiting
    # needs nothing
    assert "organization/kubenode" not in waiting
    assert not [text for text in waiting if text.startswith("types/")]


def test_a_new_workflow_waits_in_a_check_run_and_one_that_is_there_does_not():
    found = plan()
    there = awx.awx_lists(found)
    there["workflow_job_templates"] = there["workflow_job_templates"][1:]
    assert awx.awx_waiting(found, there) == [f"workflows/{found['workflows'][0]['name']}"]


def test_no_secret_is_in_a_plan():
    text = str(plan(credentials=["hcloud", "robot", "kubeconfig", "ssh"]))
    assert "t0ken" not in text
    assert "pa55word" not in text


def test_the_group_and_the_folder_are_given_to_those_who_take_them():
    found = templates(plan(dir="/var/lib/kubenode", hosts="nodes", playbooks=["site", "node_image_snapshot"]))
    assert found["site"]["extra_vars"] == {"kubenode_hosts": "nodes", "kubenode_dir": "/var/lib/kubenode"}
    assert found["node_image_snapshot"]["extra_vars"]["kubenode_image_owner"] == "awx kubenode"
    assert all(
        set(one["extra_vars"]) <= {variable.name for variable in specification.taken_by(name)}
        for name, one in found.items()
    )


def test_a_kubeconfig_goes_only_to_templates_that_use_one():
    found = templates(plan(credentials=["kubeconfig", "hcloud"]))
    assert found["hcloud_delete"]["credentials"] == ["kubenode kubeconfig", "kubenode hcloud"]
    assert found["robot_inspect"]["credentials"] == ["kubenode hcloud"]
    # what a person chose by hand stays
    assert templates(plan())["site"]["credentials"] is None


def test_a_workflow_looks_waits_for_a_person_writes_and_makes_nodes():
    found = {one["name"].rpartition(" ")[2]: one["workflow_nodes"] for one in plan()["workflows"]}
    assert list(found) == ["hcloud_image_url", "robot_installimage", "site"]
    inspect, approve, write, node = found["robot_installimage"]
    assert [inspect["unified_job_template"]["name"], inspect.get("job_type")] == ["kubenode robot_inspect", None]
    assert approve["unified_job_template"]["type"] == "workflow_approval"
    assert write["unified_job_template"]["name"] == "kubenode robot_installimage"
    assert node["related"]["success_nodes"] == []
    chain = [one["related"]["success_nodes"] for one in (inspect, approve, write)]
    assert chain == [[{"identifier": name}] for name in ("approve", "write", "node")]
    # what cannot be looked at is checked, by the template that writes
    assert [found["site"][0]["unified_job_template"]["name"], found["site"][0]["job_type"]] == [
        "kubenode site",
        "check",
    ]
    assert [one["identifier"] for one in found["site"]] == ["inspect", "approve", "write"]


def test_a_workflow_has_the_templates_that_it_runs():
    assert set(templates(plan(playbooks=["site"], workflows=["robot_image_url"]))) == {
        "site", "robot_inspect", "robot_image_url", "node",
    }  # fmt: skip


@pytest.mark.parametrize("playbook", sorted(specification.playbooks() - {"awx"}))
def test_each_playbook_can_have_a_template_and_its_file_runs_it(playbook):
    found = plan(playbooks=[playbook], workflows=[])
    (template,) = found["templates"]
    assert bool(template["survey_enabled"]) == bool(template["survey_spec"])
    files = {one["path"]: one for one in found["files"]}
    ((play,), keep) = yaml.safe_load(files[template["playbook"]]["content"]), files[template["playbook"]]["keep"]
    assert play["ansible.builtin.import_playbook"] == f"kubenode.provision.{playbook}"
    assert keep is False


def test_the_sources_of_the_inventory_are_files_of_the_project():
    found = plan(credentials=["robot"])
    files = {one["path"] for one in found["files"]}
    assert {one["source_path"] for one in found["sources"]} <= files
    assert [(one["name"], one["credential"]) for one in found["sources"]] == [
        ("kubenode machines", None), ("kubenode hcloud", None), ("kubenode robot", "kubenode robot"),
    ]  # fmt: skip
    assert len(plan(sources=[])["sources"]) == 1


def test_the_survey_is_the_users_when_there_is_one():
    found = templates(plan(surveys={"site": ["kubenode_server_type"], "robot_inspect": []}))
    assert [one["variable"] for one in found["site"]["survey_spec"]["spec"]] == ["kubenode_server_type"]
    assert found["robot_inspect"]["survey_enabled"] is False
    assert found["hcloud_image_name"]["survey_enabled"] is True


def test_what_asks_nothing_has_no_survey_at_all():
    """AWX takes none without questions."""
    found = plan(playbooks=["node", "site"], surveys={"robot_installimage": []})
    for one in (*found["templates"], *found["workflows"]):
        assert bool(one["survey_enabled"]) == bool(one["survey_spec"]) == bool((one["survey_spec"] or {}).get("spec"))
    robot = next(one for one in found["workflows"] if one["name"].endswith("robot_installimage"))
    assert robot["survey_spec"] == {}


def test_the_survey_that_a_person_made_for_what_asks_nothing_stays():
    found = templates(plan(playbooks=["node", "site"]))
    assert (found["node"]["survey_enabled"], found["node"]["survey_spec"]) == (None, None)


def test_a_workflow_asks_what_its_playbook_asks():
    found = plan(playbooks=["node", "site"], surveys={"robot_installimage": []})
    assert [one["survey_enabled"] for one in found["workflows"]] == [True, False, True]


def in_awx(workflow):
    """The nodes of a workflow as the API has them."""
    numbers = {node["identifier"]: number for number, node in enumerate(workflow["workflow_nodes"], 7)}
    return [
        {
            "id": numbers[node["identifier"]],
            "identifier": node["identifier"],
            "job_type": node.get("job_type"),
            "success_nodes": [numbers[other["identifier"]] for other in node["related"]["success_nodes"]],
            "summary_fields": {
                "workflow_job_template": {"name": workflow["name"]},
                "unified_job_template": {"name": node["unified_job_template"]["name"]},
            },
        }
        for node in workflow["workflow_nodes"]
    ]


def test_a_workflow_is_settled_when_all_of_its_nodes_are_as_planned():
    found = plan()
    names = [one["name"] for one in found["workflows"]]
    there = [in_awx(one) for one in found["workflows"]]
    assert awx.awx_settled(found, []) == []
    assert awx.awx_settled(found, there[0] + there[2]) == [names[0], names[2]]
    further = {**there[1][0], "id": 99, "identifier": "a person's"}
    assert awx.awx_settled(found, [*there[1], further]) == [names[1]]


@pytest.mark.parametrize(
    "change",
    [
        {"job_type": None},
        {"success_nodes": []},
        {"success_nodes": [7, 8]},
        {"identifier": "other"},
        # its template was deleted
        {"summary_fields": {"workflow_job_template": {"name": "kubenode workflow site"}}},
    ],
    ids=str,
)
def test_a_workflow_with_another_node_is_not_settled(change):
    found = plan(workflows=["site"])
    first, *rest = in_awx(found["workflows"][0])
    assert awx.awx_settled(found, [{**first, **change}, *rest]) == []


def test_slices_share_what_robot_allows_or_are_refused():
    assert "robot_inspect, robot_installimage, site may reset dedicated servers: without kubenode_awx_dir" in errors(
        slices=2, playbooks=["site", "node"], workflows=["robot_installimage"]
    )
    assert errors(slices=2, dir="/shared") == ""
    assert errors(slices=2, playbooks=["hcloud_image_url"], workflows=["hcloud_image_url"]) == ""
    assert "must be 1 or more" in errors(slices=0)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"playbooks": ["sites"]}, "sites is no playbook with a job; there are hcloud_delete, "),
        ({"playbooks": ["awx"]}, "awx is no playbook with a job"),
        (
            {"credentials": ["registry"]},
            "names registry, and its secrets are missing: OCI_REGISTRY_AUTH_TOKEN of the env",
        ),
        ({"surveys": {"site": ["kubenode_wipe"]}}, "kubenode_awx_surveys: survey: kubenode_wipe: no question of site"),
        ({"surveys": {"sites": []}}, "kubenode_awx_surveys: survey: 'sites' takes no variables"),
        ({"surveys": {"site": "kubenode_image_name"}}, "kubenode_awx_surveys: site: give a list of variables"),
    ],
)
def test_what_cannot_be_right_is_an_error(more, text):
    assert text in errors(**more)
    assert set(plan(**more)) == {"errors"}


@pytest.mark.parametrize("task", [one for one in TASKS if any(key.startswith("awx.awx.") for key in one)], ids=str)
def test_each_task_gives_options_that_its_module_has_and_values_that_are_in_the_plan(task):
    (module,) = [key for key in task if key.startswith("awx.awx.")]
    name = module.rpartition(".")[2]
    documented = importlib.import_module(f"ansible_collections.awx.awx.plugins.modules.{name}").DOCUMENTATION
    assert set(task[module]) <= set(yaml.safe_load(documented)["options"])
    found = plan(credentials=["hcloud", "robot", "kubeconfig", "ssh"])
    for part, key in re.findall(r"kubenode_awx\.(\w+)\.(\w+)", str(task)):
        assert key in found[part]
    looped = re.fullmatch(r"{{ kubenode_awx\.(\w+) }}", task.get("loop", ""))
    for item in found[looped[1]] if looped else ():
        assert set(re.findall(r"\bitem\.(\w+)", str({module: task[module], "when": task.get("when")}))) <= set(item)
    # a check run leaves it out when something that it needs is not there
    part = looped[1] if looped else "organization" if name == "organization" else None
    assert ("kubenode_awx_waiting" in str(task)) == (part not in ("organization", "types"))
