# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook awx makes in an AWX that has nothing of it, and that a second run changes nothing."""

import json
import re

import pytest

from tests.integration.controller import Controller

from .awx_double import TOKEN, AwxDouble

SECRETS = {"HCLOUD_TOKEN": "s3cret-cloud", "HROBOT_API_USER": "u", "HROBOT_API_PASSWORD": "s3cret-robot"}
FEW = {
    "kubenode_awx_credentials": ["hcloud", "ssh"], "kubenode_awx_sources": ["hcloud"],
    "kubenode_awx_playbooks": ["node"], "kubenode_awx_workflows": ["site"],
}  # fmt: skip
ALL = {"kubenode_awx_credentials": ["hcloud", "robot", "kubeconfig", "ssh"]}


class Administrator(Controller):
    """One who sets up an AWX."""

    def __init__(self, double, folder):
        super().__init__(None, folder)
        self.double = double

    @property
    def environment(self):
        api = {"CONTROLLER_HOST": self.double.url, "CONTROLLER_OAUTH_TOKEN": TOKEN, "no_proxy": "127.0.0.1"}
        # for hangs: the double is a thread of a busy test
        return {**super().environment, **SECRETS, **api, "CONTROLLER_REQUEST_TIMEOUT": "600"}

    def set_up(self, *flags, **variables):
        (self.folder / "config").write_text("apiVersion: v1\n# s3cret-config\n")
        given = {
            "kubenode_awx_image": "registry.example.com/ee:1",
            "kubenode_awx_project_url": "https://git.example.com/p.git",
            "kubenode_awx_kubeconfig_file": str(self.folder / "config"),
            "kubenode_awx_ssh_key_file": str(self.key),
        }
        done = self.play("kubenode.provision.awx", *flags, **given, **variables).ok()
        for secret in (*SECRETS.values(), "s3cret-config", self.key.read_text().splitlines()[1], TOKEN):
            if len(secret) > 1:
                assert secret not in done.output + json.dumps(done.results)
        return done


@pytest.fixture
def double():
    made = AwxDouble()
    yield made
    made.close()


@pytest.mark.parametrize("wish", [FEW, pytest.param(ALL, marks=pytest.mark.long)], ids=["few", "all"])
def test_a_first_run_makes_what_a_check_run_lists_and_a_second_one_changes_nothing(double, tmp_path, wish):
    administrator = Administrator(double, tmp_path)
    before = set(double.objects)
    checked = administrator.set_up("--check", **wish)
    assert double.writes == []
    listed = set(re.findall(r"would be made: (\w+/[^\"]+)", checked.output))
    once = [one["result"] for one in checked.of("localhost") if one["action"].startswith("awx.awx.")]
    tried = sum(item["changed"] for result in once for item in result.get("results", [result]))

    administrator.set_up(**wish)
    made = [one for number, (_list, one) in double.objects.items() if number not in before]
    # approvals and nodes are parts of their workflows
    whole = [one for one in made if not one["type"].startswith(("workflow_job_template_node", "workflow_approval"))]
    assert len(whole) == len(listed) + tried
    assert {one["name"] for one in whole} >= {text.partition("/")[2] for text in listed}
    assert double.named("credentials")["kubenode hcloud"]["inputs"] == {"token": "s3cret-cloud"}
    assert double.named("credentials")["kubenode ssh"]["inputs"]["ssh_key_data"] == administrator.key.read_text()
    templates = double.named("job_templates")
    asked = {one["id"]: one["survey_enabled"] for one in (templates["kubenode node"], templates["kubenode site"])}
    assert asked == {templates["kubenode node"]["id"]: False, templates["kubenode site"]["id"]: True}
    assert {number in double.surveys for number, enabled in asked.items() if enabled} == {True}
    assert templates["kubenode node"]["id"] not in double.surveys
    # a person's own, of a template that asks nothing
    double.surveys[templates["kubenode node"]["id"]] = {"name": "", "description": "", "spec": [{"variable": "x"}]}
    templates["kubenode node"]["survey_enabled"] = True
    workflow = double.named("workflow_job_templates")["kubenode workflow site"]["id"]
    nodes = {one["id"]: one for _list, one in double.objects.values() if one.get("workflow_job_template") == workflow}
    after = {number: double.associated.get((number, "success_nodes"), []) for number in nodes}
    chain = {
        one["identifier"]: [nodes[other]["identifier"] for other in after[number]] for number, one in nodes.items()
    }
    assert chain == {"inspect": ["approve"], "approve": ["write"], "write": []}
    approvals = double.named("workflow_approval_templates")
    assert approvals["kubenode approve site"]["timeout"] == 7 * 24 * 3600

    double.writes.clear()
    again = administrator.set_up(**wish)
    assert again.changed("localhost") == []
    assert double.writes == []
    assert double.surveys[templates["kubenode node"]["id"]]["spec"] == [{"variable": "x"}]
    assert "encrypted data" not in again.output


@pytest.mark.long
def test_what_a_person_changed_is_put_back_and_a_survey_that_is_not_wished_any_more_is_removed(double, tmp_path):
    administrator = Administrator(double, tmp_path)
    administrator.set_up(**FEW)
    site = double.named("job_templates")["kubenode site"]
    site["playbook"] = "other.yml"
    inspect = double.named("workflow_job_template_nodes")["inspect"]["id"]
    double.associated[inspect, "success_nodes"].clear()
    double.writes.clear()
    checked = administrator.set_up("--check", **FEW)
    assert checked.changed("localhost") == ["Make the job templates", "Make the workflows"]
    assert double.writes == []
    administrator.set_up(**FEW, kubenode_awx_surveys={"site": []})
    assert site["playbook"] == "site.yml"
    assert len(double.associated[inspect, "success_nodes"]) == 1
    assert (site["survey_enabled"], site["id"] in double.surveys) == (False, False)
