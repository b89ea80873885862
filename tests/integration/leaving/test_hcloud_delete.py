# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_delete over HTTP: whose server goes, whose stays, and what is said of it. The machines do not answer."""

import json

import pytest

from tests.integration.accounts import CloudAccount
from tests.integration.runs import QUICK

from .kubernetes_double import node, pod

PLAYBOOK = "kubenode.provision.hcloud_delete"
GONE = {"kubenode_ignore_unreachable": True}
NAMED = '-e \'{"kubenode_delete": ["here-1"]}\''
KEPT = ("known_hosts/{0}.rescue", "known_hosts/{0}.os", "intents/{0}.json", "quarantine/{0}.json")


class Account(CloudAccount):
    """A project with servers of ours and of others, and what this controller keeps of them."""

    def __init__(self, lab, folder, api):
        super().__init__(lab, folder)
        self.api, self.kept = api, folder / "kubenode"

    def create(self, *names, **labels):
        machines = [
            {"name": name, "server_type": "cx23", "ssh_keys": [self.key_name], "labels": labels} for name in names
        ]
        self.process("hcloud_machine", machines=machines).ok()
        for name in names:
            self.hosts[name] = {"ansible_user": "root"}

    def remember(self, *names):
        for name in names:
            for file in (*KEPT, "logs/{0}/stdout"):
                path = self.kept / file.format(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("{}")

    def files(self):
        return {str(path.relative_to(self.kept)) for path in self.kept.rglob("*") if path.is_file()}

    def run(self, *flags, env=None, **variables):
        shared = {"kubenode_dir": str(self.kept)}
        return self.play(PLAYBOOK, *flags, shared=shared, env={**QUICK, **(env or {})}, **variables)

    def installation(self, name):
        return self.servers()[name]["labels"]["kubenode.provision/installation"]


@pytest.fixture
def account(lab_dry, tmp_path, api):
    account = Account(lab_dry, tmp_path, api)
    yield account
    account.stop()


def test_what_is_named_goes_and_the_rest_stays(account):
    account.create("old-1", "old-2", "kept-1")
    account.remember("old-1", "kept-1")
    account.act("old-1", "enable_rescue", {"type": "linux64", "ssh_keys": [account.key_id]})
    address = account.servers()["old-1"]["public_net"]["ipv4"]["ip"]
    account.api.add(
        node("old-1", "m1", addresses=[address]), pod("web", "old-1"), pod("proxy", "old-1", "DaemonSet"),
        node("old-2", "m2", addresses=["192.0.2.77"]), pod("db", "old-2"), node("kept-1", "m3"), pod("kept", "kept-1"),
    )  # fmt: skip
    given = {"kubenode_delete": ["old-1", "old-2"], "kubenode_kubeconfig": str(account.api.kubeconfig), **GONE}
    before = account.files()

    account.run("--check", "--diff", **given).ok()
    assert (set(account.servers()), account.files()) == ({"old-1", "old-2", "kept-1"}, before)
    assert account.api.writes == []

    done = account.run(**given).ok()
    assert set(account.servers()) == {"kept-1"}
    assert account.files() == {name.format("kept-1") for name in (*KEPT, "logs/{0}/stdout")} | {"logs/old-1/stdout"}
    # its own Node is known by its address; the other one has the name of old-2, and another owner
    assert (set(account.api.nodes), set(account.api.pods)) == ({"old-2", "kept-1"}, {"proxy", "db", "kept"})
    assert "left alone, since kubenode_delete does not name them: kept-1" in done.output
    assert "1 pods evicted, Node old-1 deleted, rescue disarmed, deleted, forgotten here" in done.output
    assert "Node old-2 is not its own and was left alone" in done.output

    # the Node of a machine whose server is gone may be another one's
    left = "has no server, the Node old-2 (machine ID m2, Ready) is still in the cluster; if it is what the machine"
    account.run("--check", **given).ok().says(left, "left: kubectl delete node old-2", "changed=0")
    done = account.run(**given).ok().says(left, "left: kubectl delete node old-2", "changed=0")
    assert "the Node old-1" not in done.output
    assert set(account.api.nodes) == {"old-2", "kept-1"}


def test_what_a_server_that_is_gone_leaves_in_its_cluster(account):
    """Deleted at the console: nothing proves whose the Node is, so it is named and stays."""
    account.hosts["gone-1.k8s.example.com"] = {}
    account.remember("gone-1.k8s.example.com")
    account.api.add(node("gone-1", "", ready="Unknown"))
    given = {"kubenode_delete": ["gone-1.k8s.example.com"], "kubenode_kubeconfig": str(account.api.kubeconfig)}
    for flags in (["--check"], []):
        done = account.run(*flags, **given).ok()
        done.says("has no server, the Node gone-1 (machine ID unknown, NotReady) is still in the cluster", "forg")
        assert account.api.writes == []
    assert account.files() == {"logs/gone-1.k8s.example.com/stdout"}
    account.api.nodes.clear()
    assert "still in the cluster" not in account.run(**given).ok().says("has no server").output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["kubenode_delete names no machine", "here-1", NAMED]),
        ({"kubenode_delete": []}, ["kubenode_delete names no machine"]),
        ({"kubenode_delete": "here-1"}, ["kubenode_delete: 'here-1' is neither a list", f"write {NAMED}"]),
        ({"kubenode_delete": "[here-1]"}, ["kubenode_delete: '[here-1]' is neither a list", f"write {NAMED}"]),
        ({"kubenode_delete": {"here-1": "xyz"}}, ["kubenode_delete: here-1: 'xyz' is no id of an installation"]),
        ({"kubenode_delete": ["here-9"]}, ["kubenode_delete names here-9", "inventory"]),
        ({"kubenode_delete": ["here-1"], "kubenode_evict_timeout": "soon"}, ["kubenode_evict_timeout is 'soon'"]),
        ({"kubenode_delete": ["here-1"], "kubenode_kubeconfig": "/nowhere"}, ["kubenode_kubeconfig is /nowhere"]),
        ({"kubenode_delete": ["here-1"], "kubenode_ignore_unreachable": "maybe"}, ["kubenode_ignore_unreachable is"]),
    ],
)
def test_bad_input_is_one_error_and_nothing_happens(account, given, words):
    account.hosts["here-1"] = {}
    account.forget_requests()
    done = account.run(**given).fails().says(*words, "Nothing was changed")
    assert done.output.count("fatal:") + done.output.count("[ERROR]") <= 2
    assert account.requests() == []


def test_whose_permission_whose_server_and_which_installation(account):
    """One scenario, since every run takes seconds: three refusals, then the same servers go."""
    account.create("ours-1")
    account.call(
        "POST",
        "/servers",
        {"name": "theirs-1", "server_type": "cx23", "image": "debian-12", "start_after_create": False},
    )
    account.hosts["theirs-1"] = {}
    both = {"ours-1", "theirs-1"}
    # a word in the inventory deletes nothing
    account.hosts["ours-1"]["kubenode_delete"] = ["ours-1"]
    account.run(**GONE).fails().says("kubenode_delete stands in the inventory")
    assert set(account.servers()) == both
    # the command line says it for this run, for a server of another owner, too
    account.run(kubenode_delete=["ours-1", "theirs-1"], **GONE).fails().says("was not made by this collection")
    assert set(account.servers()) == both
    # a dictionary names one installation
    installation = account.installation("ours-1")
    other = "0" * 8 if not installation.startswith("0" * 8) else "1" * 8
    done = account.run(kubenode_delete={"ours-1": other}, **GONE).fails()
    done.says(f"kubenode_delete names installation {other} of ours-1, but {installation[:8]} is there")
    assert set(account.servers()) == both
    # adopted, and named
    machine = {"name": "theirs-1", "server_type": "cx23", "ssh_keys": [account.key_name], "adopt": True}
    assert account.process("hcloud_machine", machines=[machine]).rc == 0
    account.run(kubenode_delete=["ours-1", "theirs-1"], **GONE).ok()
    assert account.servers() == {}


def test_a_server_that_is_protected_is_refused_before_its_machine_leaves(account, tmp_path):
    account.create("kept-1", "free-1")
    account.act("kept-1", "change_protection", {"delete": True, "rebuild": True})
    address = account.servers()["kept-1"]["public_net"]["ipv4"]["ip"]
    account.api.add(node("kept-1", "m1", addresses=[address]), pod("web", "kept-1"))
    report = tmp_path / "report.json"
    callback = {
        "ANSIBLE_CALLBACKS_ENABLED": "kubenode.provision.provision_report",
        "KUBENODE_REPORT_FILE": str(report),
    }
    given = {"kubenode_delete": ["kept-1", "free-1"], "kubenode_kubeconfig": str(account.api.kubeconfig), **GONE}
    done = account.run(env=callback, **given)
    account.act("kept-1", "change_protection", {"delete": False, "rebuild": False})
    assert done.rc != 0
    assert "is protected against deletion; take the protection off, then run again" in done.output
    done.says("Nothing was changed", "Not attempted: free-1, kept-1")
    said = json.loads(report.read_text())
    assert (said["changed"], said["not_attempted"], said["machines"]) == (False, ["free-1", "kept-1"], [])
    assert account.api.writes == []
    assert set(account.servers()) == {"kept-1", "free-1"}


def test_a_server_that_was_given_another_name_is_not_forgotten(account):
    account.create("node-1")
    account.remember("node-1")
    before, server = account.files(), account.server("node-1")
    account.call("PUT", f"/servers/{server['id']}", {"name": "old-1"})
    for flags in (["--check"], []):
        done = account.run(*flags, kubenode_delete=["node-1"], **GONE).fails()
        done.says(f"no server is called node-1, but old-1 (id {server['id']}) has its label; rename it back, or")
        assert set(account.servers()) == {"old-1"}
        assert before <= account.files()
    account.call("PUT", f"/servers/{server['id']}", {"name": "node-1"})
    # a tag chooses no step of this playbook
    account.run("--tags", "base", kubenode_delete=["node-1"], **GONE).ok()
    assert set(account.servers()) == {"node-1"}
    account.run(kubenode_delete=["node-1"], **GONE).ok()
    assert account.servers() == {}


def test_a_primary_ip_of_a_person_does_not_go_unsaid(account):
    body = {"name": "front", "type": "ipv4", "location": "fsn1", "auto_delete": True}
    front = account.call("POST", "/primary_ips", body)["primary_ip"]
    machine = {"name": "front-1", "server_type": "cx23", "ssh_keys": [account.key_name], "primary_ipv4": "front"}
    account.process("hcloud_machine", machines=[machine]).ok()
    account.create("back-1")
    account.hosts["front-1"] = {"ansible_user": "root"}
    back = next(
        item for item in account.call("GET", "/primary_ips")["primary_ips"]
        if item["assignee_id"] == account.server("back-1")["id"] and item["type"] == "ipv4"
    )  # fmt: skip
    # one that came with its server, which the inventory names since
    account.hosts["back-1"]["kubenode_primary_ipv4"] = back["name"]
    for flags in (["--check"], []):
        done = account.run(*flags, kubenode_delete=["front-1", "back-1"], **GONE).fails()
        done.says("front-1: server 'front-1'", f"would take primary IP 'front' ({front['ip']}) with it", "Nothing was")
        done.says(f"hcloud primary-ip update {front['id']} --auto-delete=false", f"update {back['id']} --auto-delete=f")
        assert set(account.servers()) == {"front-1", "back-1"}
    for item in (front, back):
        account.call("PUT", f"/primary_ips/{item['id']}", {"auto_delete": False})
    account.run(kubenode_delete=["front-1", "back-1"], **GONE).ok()
    assert account.servers() == {}
    left = {item["name"] for item in account.call("GET", "/primary_ips")["primary_ips"]}
    assert left == {"front", back["name"]}
    for item in (front, back):
        account.call("DELETE", f"/primary_ips/{item['id']}")


@pytest.mark.long
def test_a_silent_machine_and_one_with_a_budget_keep_their_servers(account):
    account.create("silent-1", "busy-1", "free-1")
    addresses = {name: server["public_net"]["ipv4"]["ip"] for name, server in account.servers().items()}
    installations = {name: account.installation(name) for name in addresses}
    account.run(kubenode_delete=["silent-1"]).fails().says("-e kubenode_ignore_unreachable=true")
    assert "silent-1" in account.servers()

    account.api.add(*(node(name, "", addresses=[address]) for name, address in addresses.items()), pod("web", "busy-1"))
    account.api.budgets["web"] = 0
    given = {"kubenode_kubeconfig": str(account.api.kubeconfig), "kubenode_evict_timeout": 1, **GONE}
    account.remember("busy-1")
    (account.run(kubenode_delete=["busy-1", "free-1"], **given).fails().says("a PodDisruptionBudget does not allow it"))
    assert set(account.servers()) == {"silent-1", "busy-1"}
    assert set(account.api.nodes) == {"silent-1", "busy-1"}
    assert "intents/busy-1.json" in account.files()
    account.api.budgets["web"] = 1
    # each by the first digits of its installation
    account.run(kubenode_delete={name: installations[name][:8] for name in ("busy-1", "free-1")}, **given).ok()
    assert set(account.servers()) == {"silent-1"}


def test_check_mode_on_machines_that_do_not_exist(account):
    account.hosts.update({"new-1": {}, "new-2": {}})
    done = account.run("--check", kubenode_delete=["new-1"], kubenode_kubeconfig=str(account.api.kubeconfig)).ok()
    done.says("changed=0")
    assert account.servers() == {}
