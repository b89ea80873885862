# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_machine: private networks, primary IPs, labels that go, user data from a file, keys by their labels."""

import pytest

PRIVATE = {"enable_ipv4": False, "enable_ipv6": False}
SUBNETS = [{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.1.0/24"}]


@pytest.fixture
def cluster(project):
    """The id of a private network."""
    body = {"name": "cluster", "ip_range": "10.0.0.0/16", "subnets": SUBNETS}
    return project.call("POST", "/networks", body)["network"]["id"]


@pytest.mark.usefixtures("cluster")
def test_a_static_address_and_aliases_are_attached_before_the_first_boot(project):
    place = {"name": "cluster", "ip": "10.0.1.11", "alias_ips": ["10.0.1.111"]}
    machines = [project.machine("n1", networks=[place]), project.machine("n2", networks=["cluster"], **PRIVATE)]
    run = project.run("hcloud_machine", machines=machines, wait=False).ok()
    first, second = run.machines["n1"], run.machines["n2"]
    assert first["private_net"][0]["ip"] == "10.0.1.11"
    assert first["private_net"][0]["alias_ips"] == ["10.0.1.111"]
    assert first["address"] == first["ipv4"]
    # without a public address, the private one is known although nothing else was waited for
    assert (second["ipv4"], second["ipv6"]) == (None, None)
    assert second["address"] == second["private_net"][0]["ip"] == project.server("n2")["private_net"][0]["ip"]
    assert project.commands("n1") == ["create_server", "attach_to_network"]
    assert {server["status"] for server in project.servers().values()} == {"off"}

    again = project.run("hcloud_machine", machines=machines)
    assert not again.result["changed"]
    assert [machine["msg"] for machine in again.machines.values()] == ["exists", "exists"]


def test_a_creation_that_was_cut_off_is_completed_while_the_server_has_never_started(project, cluster):
    place = {"name": "cluster", "ip": "10.0.1.11"}
    project.run("hcloud_machine", machines=[project.machine("n1"), project.machine("n2")])
    project.act("n2", "poweron")
    project.act("n2", "poweroff")
    machines = [
        project.machine(name, networks=[{**place, "ip": ip}]) for name, ip in (("n1", "10.0.1.11"), ("n2", "10.0.1.12"))
    ]
    check = project.run("hcloud_machine", "--check", machines=machines)
    assert check.machines["n1"]["msg"] == "exists, would attach its networks"
    run = project.run("hcloud_machine", machines=machines)
    assert run.machines["n1"]["msg"] == "exists, attached its networks"
    assert run.machines["n1"]["private_net"] == [{"network": cluster, "ip": "10.0.1.11", "alias_ips": []}]
    assert run.machines["n2"]["msg"] == "exists, without 1 of the networks, which is left as it is"
    assert project.server("n2")["private_net"] == []


@pytest.mark.usefixtures("cluster")
def test_what_cannot_be_is_refused_before_anything_is_created(project):
    project.call("POST", "/primary_ips", {"name": "front", "type": "ipv4", "location": "nbg1"})
    static = [{"name": "cluster", "ip": "10.0.1.11"}]
    machines = [
        project.machine("n0", networks=static),
        project.machine("n1", networks=static),
        project.machine("n2", networks=[{"name": "cluster", "ip": "10.0.7.1"}]),
        project.machine("n3", primary_ipv4="front"),
        project.machine("n4", **PRIVATE),
        project.machine("n5", server_type="cpx11", location="ash", networks=["cluster"]),
        project.machine("n6", user_data_file="/nowhere/at/all"),
    ]
    run = project.run("hcloud_machine", machines=machines)
    for finding in (
        "machine 'n1': networks: '10.0.1.11' is taken by 'n0'",
        "machine 'n2': networks: '10.0.7.1' is in none of the subnets",
        "machine 'n3': primary_ipv4: 'front' is in nbg1; name that location",
        "machine 'n4': enable_ipv4 and enable_ipv6 are false, and networks is empty",
        "machine 'n5': networks: the subnets are in eu-central, but location ash is not",
        "machine 'n6': user_data_file: '/nowhere/at/all' cannot be read",
    ):
        assert finding in run.result["msg"]
    assert project.servers() == {}


def test_a_primary_ip_is_used_and_decides_the_location(project):
    body = {"name": "front", "type": "ipv4", "location": "nbg1"}
    front = project.call("POST", "/primary_ips", body)["primary_ip"]
    wanted = project.machine("n1", location=["fsn1", "nbg1"], primary_ipv4="front", enable_ipv6=False)
    run = project.run("hcloud_machine", machines=[wanted])
    assert (run.machines["n1"]["ipv4"], run.machines["n1"]["location"]) == (front["ip"], "nbg1")
    assert not project.run("hcloud_machine", machines=[wanted]).result["changed"]
    other = project.run("hcloud_machine", machines=[{**wanted, "name": "n2"}])
    assert "primary_ipv4: 'front' belongs to server" in other.result["msg"]


@pytest.mark.usefixtures("cluster")
def test_the_rescue_is_refused_without_a_public_address(project):
    run = project.run("hcloud_machine", machines=[project.machine("n1", networks=["cluster"], **PRIVATE)])
    options = {"ssh_keys": [project.key_name], "ssh_private_key": str(project.key), "prove": False}
    armed = project.run("hcloud_rescue", machines=list(run.machines.values()), on_error="report", **options)
    assert "has no public address, and Hetzner's rescue has its network there" in armed.machines["n1"]["msg"]
    assert project.commands("n1") == ["create_server"]


def test_labels_go_user_data_comes_from_a_file_and_keys_by_their_labels(project, tmp_path):
    public = project.new_key("other").with_suffix(".pub").read_text()
    project.call("POST", "/ssh_keys", {"name": "other", "public_key": public, "labels": {"team": "ops"}})
    file = tmp_path / "user-data.yml"
    file.write_text("#cloud-config\n# words-to-hide\n")
    wanted = project.machine("n1", labels={"pool": "a", "old": "x"}, user_data_file=str(file))
    keys = [project.key_name, {"label_selector": "team=ops"}]
    run = project.run("hcloud_machine", "--diff", "-vvv", machines=[{**wanted, "ssh_keys": keys}])
    assert [key["name"] for key in run.machines["n1"]["ssh_keys"]] == [project.key_name, "other"]
    assert "words-to-hide" not in run.output

    run = project.run("hcloud_machine", machines=[{**wanted, "labels": {"old": None}}])
    assert run.machines["n1"]["msg"] == "labels set"
    labels = project.server("n1")["labels"]
    assert (labels.get("pool"), "old" in labels) == ("a", False)
    assert not project.run("hcloud_machine", machines=[{**wanted, "labels": {"old": None}}]).result["changed"]
    armed = project.run(
        "hcloud_rescue", machines=[{"name": "n1"}], ssh_keys=[{"label_selector": "team=ops"}], prove=False,
    )  # fmt: skip
    assert not armed.failed, armed.result
