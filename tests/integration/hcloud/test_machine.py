# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_machine against the lab: what is created, kept, adopted, refused and deleted."""

import pytest

LABEL = "kubenode.provision/machine"
ADOPTED = "kubenode.provision/adopted"


def test_machines_are_created_powered_off_and_marked_and_then_left_alone(project):
    machines = [
        project.machine("n1", labels={"pool": "a"}),
        project.machine("n2", server_type="cax11", location="hel1", user_data="#cloud-config\n# words-to-hide\n"),
    ]
    run = project.run("hcloud_machine", "-vvv", machines=machines, ssh_private_key=str(project.key)).ok()
    assert run.result["changed"]
    assert "words-to-hide" not in run.output
    assert project.lab.token not in run.output
    servers = project.servers()
    assert {name: server["status"] for name, server in servers.items()} == {"n1": "off", "n2": "off"}
    installation = servers["n1"]["labels"].pop("kubenode.provision/installation")
    assert len(installation) == 32
    assert servers["n1"]["labels"] == {"pool": "a", LABEL: "n1"}
    assert servers["n2"]["image"]["architecture"] == "arm"
    first = run.machines["n1"]
    assert first["id"] == servers["n1"]["id"]
    assert first["ipv4"] == servers["n1"]["public_net"]["ipv4"]["ip"]
    assert (first["created"], first["fresh"], first["status"], first["failed"]) == (True, True, "off", False)
    assert [change["to"] for change in first["transitions"]] == ["Initializing"]
    assert first["boot_state"] == "Initializing"
    assert project.commands("n1") == ["create_server"]

    again = project.run("hcloud_machine", machines=machines, ssh_private_key=str(project.key))
    assert not again.result["changed"]
    assert again.machines["n1"]["msg"] == "exists"
    assert (again.machines["n1"]["created"], again.machines["n1"]["fresh"]) == (False, None)
    assert again.machines["n1"]["transitions"] == [], "it is off, and not being created"
    assert again.result["api_calls"] <= 5


def test_check_mode_changes_nothing_and_says_what_it_would_do(project):
    run = project.run("hcloud_machine", "--check", "--diff", machines=[project.machine("n1")])
    assert run.result["changed"]
    assert run.machines["n1"]["msg"] == "would create the server"
    assert (run.machines["n1"]["created"], run.machines["n1"]["id"]) == (True, None)
    assert '+    "server_type": "cx23"' in run.output
    assert project.servers() == {}

    project.run("hcloud_machine", machines=[project.machine("n1")])
    run = project.run("hcloud_machine", "--check", "--diff", machines=[{"name": "n1"}], state="absent")
    assert run.machines["n1"]["msg"] == "would delete the server"
    assert list(project.servers()) == ["n1"]


def test_all_findings_of_all_machines_come_together_and_before_any_change(project):
    machines = [
        project.machine("good"),
        project.machine("n1", server_type="cx99"),
        project.machine("n2", location="mars"),
        project.machine("n3", image="no-such-image"),
        project.machine("n4", ssh_keys=["missing"]),
        project.machine("n5", ssh_keys=[]),
        project.machine("n6", labels={"a b": "c"}),
        project.machine("n7", networks=["nowhere"]),
    ]
    project.run("hcloud_machine", machines=machines).fails(
        "machine 'n1': server_type: 'cx99' does not exist",
        "machine 'n2': location: 'mars' does not exist",
        "machine 'n3': image: 'no-such-image' is neither",
        "machine 'n4': ssh_keys: 'missing' does not exist; there are: deploy",
        "machine 'n5': ssh_keys: empty",
        "machine 'n6': labels: the key 'a b'",
        "machine 'n7': networks: 'nowhere' does not exist",
    )
    assert project.servers() == {}


def test_a_private_key_that_opens_nothing_is_refused(project):
    other = project.new_key("other").with_suffix(".pub").read_text()
    project.call("POST", "/ssh_keys", {"name": "other", "public_key": other})
    machines = [project.machine("n1", ssh_keys=["other"])]
    project.run("hcloud_machine", machines=machines, ssh_private_key=str(project.key)).fails(
        "opens none of 'other'; name 'deploy'"
    )
    assert project.servers() == {}


@pytest.mark.parametrize(
    ("names", "finding"), [(["a", "a"], "named twice"), (["Bad_Name"], "RFC 1123"), (["-x"], "RFC 1123")]
)
def test_names_are_checked_first(project, names, finding):
    run = project.run("hcloud_machine", machines=[project.machine(name) for name in names]).fails(finding)
    assert run.result["api_calls"] == 0


def test_a_server_of_another_user_is_refused_and_adopted_only_on_demand(project):
    body = {"name": "old", "server_type": "cx23", "image": "debian-12", "labels": {"keep": "me"}}
    project.call("POST", "/servers", body)
    run = project.run("hcloud_machine", machines=[project.machine("old"), project.machine("new")]).fails()
    assert "was not made by this collection" in run.machines["old"]["msg"]
    assert run.machines["new"]["created"]
    assert project.servers()["old"]["labels"] == {"keep": "me"}

    run = project.run("hcloud_machine", machines=[{"name": "old"}], state="absent", on_error="report").ok()
    assert run.machines["old"]["failed"]
    assert "old" in project.servers()

    run = project.run("hcloud_machine", machines=[project.machine("old", adopt=True)])
    assert run.machines["old"]["adopted"]
    assert project.servers()["old"]["labels"] == {"keep": "me", LABEL: "old", ADOPTED: "old"}
    again = project.run("hcloud_machine", machines=[project.machine("old", adopt=True)])
    assert not again.result["changed"]


def test_absent_deletes_what_is_ours_and_is_idempotent(project):
    project.run("hcloud_machine", machines=[project.machine("n1"), project.machine("n2")])
    run = project.run("hcloud_machine", machines=[{"name": "n1"}, {"name": "never"}], state="absent").ok()
    assert [machine["price_hourly"] is not None for machine in run.result["machines"]] == [True, False]
    assert run.machines["n1"]["status"] == "deleted"
    assert run.machines["never"]["changed"] is False
    assert list(project.servers()) == ["n2"]
    assert not project.run("hcloud_machine", machines=[{"name": "n1"}], state="absent").result["changed"]


def test_a_server_with_another_name_is_neither_called_gone_nor_made_again(project):
    project.run("hcloud_machine", machines=[project.machine("n1"), project.machine("n2")])
    renamed = project.server("n2")["id"]
    project.call("PUT", f"/servers/{renamed}", {"name": "old-n2"})
    text = f"no server is called n2, but old-n2 (id {renamed}) has its label; rename it back, or"
    run = project.run("hcloud_machine", machines=[{"name": "n2"}], state="absent").fails(f"{text} take the label")
    assert (run.result["changed"], run.result["api_calls"]) == (False, 1)
    project.run("hcloud_machine", machines=[project.machine("n2")]).fails(f"{text} take the label")
    both = [project.machine("n1"), project.machine("n2")]
    project.run("hcloud_machine", machines=both).fails(f"{text} take the label")
    assert set(project.servers()) == {"n1", "old-n2"}


def test_load_balancers_that_stay_are_named(project):
    project.run("hcloud_machine", machines=[project.machine("n1")])
    target = {"type": "server", "server": {"id": project.server("n1")["id"]}}
    body = {"name": "lb-of-n1", "load_balancer_type": "lb11", "location": "fsn1", "targets": [target]}
    balancer = project.call("POST", "/load_balancers", body)["load_balancer"]["id"]
    try:
        run = project.run("hcloud_machine", "--check", machines=[{"name": "n1"}], state="absent").ok()
        assert run.machines["n1"]["msg"] == f"would delete the server (what stays and costs: load balancer {balancer})"
    finally:
        project.call("DELETE", f"/load_balancers/{balancer}")


def test_labels_are_added_and_others_kept(project):
    project.run("hcloud_machine", machines=[project.machine("n1", labels={"a": "1"})])
    run = project.run("hcloud_machine", "--diff", machines=[project.machine("n1", labels={"b": "2"})])
    assert run.result["changed"]
    labels = project.servers()["n1"]["labels"]
    assert labels.pop("kubenode.provision/installation")
    assert labels == {"a": "1", "b": "2", LABEL: "n1"}


@pytest.mark.parametrize(
    ("token", "message"),
    [("", "api_token: missing"), ("wrong", "api_token: the API refused the token"), (None, "may only read")],
)
def test_credentials_fail_the_fleet_with_one_clear_error(project, token, message):
    token = project.lab.read_only_token if token is None else token
    machines = [project.machine(f"n{number}") for number in range(5)]
    run = project.run("hcloud_machine", machines=machines, env={"HCLOUD_TOKEN": token}).fails(message)
    assert run.result["machines"] == []
    assert project.servers() == {}
    assert not token or token not in run.output


def test_a_budget_that_cannot_suffice_is_refused_before_the_first_change(lab, tmp_path):
    from lab.api.cloud_project import Settings
    from tests.integration.hcloud.conftest import Project

    project = Project(lab(settings=Settings(limit=20)), tmp_path, "deploy")
    machines = [project.machine(f"n{number}") for number in range(40)]
    project.run("hcloud_machine", machines=machines, timeout=30).fails(
        "API budget: changing 40 machines needs about", "of 20 are left"
    )
    assert project.servers() == {}


def test_what_arming_will_cost_is_refused_before_the_first_server(lab, tmp_path):
    from lab.api.cloud_project import Settings
    from tests.integration.hcloud.conftest import Project

    project = Project(lab(settings=Settings(limit=60)), tmp_path, "deploy")
    machines = [project.machine(f"n{number}") for number in range(40)]
    project.run("hcloud_machine", machines=machines, timeout=30, wait=False).fails(
        "API budget: creating, arming and starting 40 machines needs about 136 API requests"
    )
    assert project.servers() == {}
