# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory of the machines that runs have proven: what is in it, who may write it, and how ssh takes it."""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.action.machine_inventory import ActionModule
from ansible_collections.kubenode.provision.plugins.module_utils._common import ssh_access
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import machine_inventory

HOST = {
    "inventory_hostname": "Node-1",
    "ansible_user": "root",
    "ansible_ssh_private_key_file": "~/.ssh/id",
    "ansible_ssh_extra_args": "-o Compression=yes",
    "kubenode_os_user": "debian",
    "kubenode_os_port": 2222,
}
PROVEN = {"name": "Node-1", "address": "203.0.113.5", "runs": True}


@pytest.fixture
def folder(tmp_path):
    """A folder of runs with a name that ssh and shells split, in which the host key of Node-1 is pinned."""
    folder = tmp_path / "my runs, 100%"
    (folder / "known_hosts").mkdir(parents=True)
    (folder / "known_hosts/Node-1.os").write_text("node-1.os ssh-ed25519 AAAA\n")
    return folder


def ssh_settings(arguments):
    """What ssh makes of arguments: its settings, by their names."""
    done = subprocess.run(["ssh", "-F", "none", "-G", *shlex.split(arguments), "h"], stdout=subprocess.PIPE, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.decode().splitlines() if " " in line)


def test_a_proven_machine_is_reached_at_its_address_under_its_pinned_key(folder):
    phase = [{"name": "Node-1", "id": 4711, "ipv4": "203.0.113.9"}, {"name": "Node-1", "id": 1}]
    late = {"name": "late", "address": "203.0.113.6", "runs": False}
    built = {"name": "built", "address": "203.0.113.7", "runs": True}
    hostvars = {"Node-1": HOST, "late": {}, "built": {"inventory_hostname": "built", "kubenode_build": {}}}
    found = machine_inventory.hosts_of([PROVEN, late, built], hostvars, phase, str(folder))
    arguments = found["Node-1"].pop("ansible_ssh_extra_args")
    assert found == {
        "Node-1": {
            "ansible_host": "203.0.113.5",
            "ansible_user": "debian",
            "ansible_port": 2222,
            "ansible_ssh_private_key_file": "~/.ssh/id",
            "ansible_host_key_checking": True,
            "kubenode_server_id": 4711,
        }
    }
    settings = ssh_settings(arguments)
    assert settings["compression"] == "yes"
    assert settings["hostkeyalias"] == "node-1.os"
    assert settings["userknownhostsfile"] == str(folder / "known_hosts/Node-1.os")


def test_a_dedicated_server_and_a_relative_key(folder, monkeypatch):
    monkeypatch.chdir(folder)
    host = {"inventory_hostname": "d", "ansible_ssh_private_key_file": "keys/id", "ansible_port": "22"}
    machine = {"name": "d", "address": None, "runs": True}
    phase = [{"name": "d", "server_number": 321, "ipv4": None, "ipv6_address": "2001:db8::1"}]
    assert machine_inventory.hosts_of([machine], {"d": host}, phase, str(folder)) == {
        "d": {
            "ansible_host": "2001:db8::1",
            "ansible_port": "22",
            "ansible_ssh_private_key_file": str(folder / "keys/id"),
            "kubenode_server_id": 321,
        }
    }


def test_an_id_of_the_api_that_is_a_text_is_not_kept(folder):
    phase = [{"name": "Node-1", "id": "{{ lookup('pipe', 'id') }}", "ipv4": "203.0.113.9"}]
    found = machine_inventory.hosts_of([PROVEN], {"Node-1": HOST}, phase, str(folder))
    assert "kubenode_server_id" not in found["Node-1"]


def test_the_arguments_of_a_user_who_names_host_keys_stay_as_they_are(folder):
    own = {**HOST, "ansible_ssh_extra_args": "", "ansible_ssh_common_args": "-o hostkeyalias=bastion-view"}
    assert machine_inventory.ssh_args(own, str(folder)) == ""
    once = machine_inventory.ssh_args(HOST, str(folder))
    assert machine_inventory.ssh_args({**HOST, "ansible_ssh_extra_args": once}, str(folder)) == once
    assert machine_inventory.ssh_args({**HOST, "inventory_hostname": "other"}, str(folder)) == "-o Compression=yes"


def test_the_host_keys_of_a_jump_host_are_not_those_of_the_machine(folder):
    jump = "-o ProxyCommand='ssh -o UserKnownHostsFile=/dev/null -o HostKeyAlias=x -W %h:%p bastion'"
    own = {**HOST, "ansible_ssh_common_args": jump}
    settings = ssh_settings(machine_inventory.ssh_args(own, str(folder)))
    assert settings["userknownhostsfile"] == str(folder / "known_hosts/Node-1.os")
    for given in ("-o 'UserKnownHostsFile /x'", "-ouserknownhostsfile=/x", "-C -o HostKeyAlias=x"):
        assert machine_inventory.names_host_keys({**own, "ansible_ssh_args": given}), given


def test_later_runs_know_the_machine_unless_the_user_says_how_it_is_reached(folder):
    path = str(folder / machine_inventory.NAME)
    machine_inventory.change(path, {"Node-1": {"ansible_host": "203.0.113.5"}})
    assert machine_inventory.access(HOST, str(folder)) == {"ansible_host": "203.0.113.5"}
    assert machine_inventory.access({**HOST, "inventory_hostname": "other"}, str(folder)) == {}
    assert machine_inventory.access({**HOST, "ansible_connection": "local"}, str(folder)) == {}
    assert machine_inventory.access({**HOST, "ansible_connection": "ansible.builtin.ssh"}, str(folder)) != {}
    assert machine_inventory.access({**HOST, "ansible_ssh_args": "-oHostKeyAlias=x"}, str(folder)) == {}


def test_runs_at_the_same_time_lose_nothing_of_each_other(folder):
    path = str(folder / "new" / machine_inventory.NAME)
    with ThreadPoolExecutor(20) as runs:
        list(runs.map(lambda number: machine_inventory.change(path, {f"n{number}": {"ansible_host": "h"}}), range(20)))
    assert sorted(machine_inventory.read(path)) == sorted(f"n{number}" for number in range(20))
    assert not machine_inventory.change(path, {"n1": {"ansible_host": "h"}})
    assert machine_inventory.change(path, {}, gone=["n1", "never there"])
    assert "n1" not in machine_inventory.read(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert [one.name for one in (folder / "new").iterdir()] == [machine_inventory.NAME]


def test_ansible_reads_it(folder):
    path = str(folder / machine_inventory.NAME)
    machine_inventory.change(path, {"Node-1": {"ansible_host": "203.0.113.5"}, "no": {"ansible_host": "ü"}})
    assert yaml.safe_load((folder / machine_inventory.NAME).read_text())["all"]["hosts"]["no"] == {"ansible_host": "ü"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("all: {hosts: {mine: {}}}\n", "is not the file that runs keep their machines in"),
        ("# Written by kubenode.provision\nall: {hosts: [\n", "is damaged; remove it"),
        ("# Written by kubenode.provision\nall: 3\n", "is damaged; remove it"),
    ],
)
def test_a_file_that_is_not_ours_stays_as_it_is(folder, text, words):
    path = folder / machine_inventory.NAME
    path.write_text(text)
    with pytest.raises(machine_inventory.InventoryError, match=words):
        machine_inventory.change(str(path), {"n": {}})
    assert path.read_text() == text


def call(path, check_mode=False, sources=(), hostvars=None, **given):
    """What the action answers."""
    task = SimpleNamespace(
        action="machine_inventory", args={"path": str(path), **given}, async_val=0, check_mode=check_mode,
        collections=[], diff=False,
    )  # fmt: skip
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), become=None)
    variables = {"ansible_inventory_sources": list(sources), **({"hostvars": hostvars} if hostvars else {})}
    return ActionModule(task, connection, SimpleNamespace(), None, None, None).run(None, variables)


def test_the_run_says_how_to_go_on(folder):
    path = folder / machine_inventory.NAME
    hosts = {"a": {"ansible_host": "203.0.113.5"}, "b": {"ansible_host": "203.0.113.6"}}
    would = call(path, check_mode=True, hosts=hosts)
    assert (would["msg"], would["changed"], path.exists()) == ("", True, False)
    answer = call(path, hosts=hosts, sources=["/srv/inventory.yml", "a,b"])
    assert (answer["failed"], answer["changed"]) == (False, True)
    quoted = shlex.quote(str(path))
    assert answer["msg"] == (
        f"{path} says how these 2 machines are reached. To go on: ansible-playbook -i /srv/inventory.yml -i a,b -i "
        f"{quoted} kubenode.provision.node"
    )
    # it is one of the run's own inventories
    again = call(path, hosts={"a": hosts["a"]}, sources=[str(path)])
    assert again["msg"].endswith(f"ansible-playbook -i {quoted} kubenode.provision.node")
    assert not again["changed"]
    for check_mode, changed in ((True, True), (False, True), (True, False), (False, False)):
        gone = call(path, check_mode=check_mode, gone=["a"])
        assert (gone["msg"], gone["changed"]) == ("", changed)
    assert list(machine_inventory.read(str(path))) == ["b"]


def test_machines_are_well_where_the_file_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / machine_inventory.NAME
    answer = call(path, hosts={"a": {}})
    assert not answer["failed"]
    (text,) = answer["warnings"]
    assert f"{path} cannot be written (" in text


def itself(text):
    return text


class Unsafe(str):
    """A text of a module's result as ansible-core 2.18 has it: as a text it is itself."""

    __str__ = itself


def test_texts_of_results_are_kept_on_ansible_core_2_18(folder):
    hosts = {Unsafe("n-1"): {Unsafe("ansible_host"): Unsafe("203.0.113.5"), "list": [Unsafe("x")]}}
    path = str(folder / "inventory.yml")
    assert machine_inventory.change(path, hosts)
    assert machine_inventory.read(path) == {"n-1": {"ansible_host": "203.0.113.5", "list": ["x"]}}


def answers(*addresses):
    return {"network": {"addresses": [{"address": address} for address in addresses]}}


SERVER = {"ipv4": "192.0.2.1", "ipv6": "2001:db8:1::/64", "private_net": [{"ip": "10.0.0.2"}, {"ip": None}]}


@pytest.mark.parametrize(
    ("node", "server"),
    [
        (answers("172.17.0.1", "192.0.2.1"), SERVER),
        (answers("fe80::1", "2001:db8:1::a"), SERVER),
        (answers("10.0.0.2"), SERVER),
        # nothing to compare
        (answers("192.0.2.9"), {"ipv4": None, "ipv6": None}),
        (answers(), SERVER),
        (answers("no address"), SERVER),
        ({}, SERVER),
        (None, SERVER),
    ],
)
def test_a_machine_with_an_address_of_its_server_is_that_server(folder, node, server):
    assert machine_inventory.another_server(node, server, {"inventory_hostname": "node-9"}, folder) == ""


def test_a_machine_without_an_address_of_its_server_is_another_one_unless_its_key_is_pinned(folder):
    node, host = answers("fe80::9", "192.0.2.9", "x{{ y }}"), {"inventory_hostname": "node-9"}
    text = machine_inventory.another_server(node, SERVER, host, folder)
    assert "it has fe80::9, 192.0.2.9; the server has 192.0.2.1, 2001:db8:1::/64, 10.0.0.2." in text
    # a user's file proves as much as that file does, which may be nothing
    args = {"ansible_ssh_extra_args": "-o UserKnownHostsFile=/dev/null"}
    assert machine_inventory.another_server(node, SERVER, {**host, **args}, folder) == text
    assert machine_inventory.another_server(node, SERVER, {"inventory_hostname": "Node-1"}, folder) == ""


BOOT = "3f0c8a52-8a4e-4a53-9d0a-3d0a5f6a3a11"


def public_key(letter):
    """A line of a public host key."""
    blob = (11).to_bytes(4, "big") + b"ssh-ed25519" + (32).to_bytes(4, "big") + letter.encode() * 32
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def prove(folder, name, key, boot=BOOT):
    """A run of this controller has proven a machine."""
    (folder / "known_hosts").mkdir(parents=True, exist_ok=True)
    text = ssh_access.header(boot, "run-1") + ssh_access.known_hosts(f"{name.lower()}.os", [key])
    (folder / f"known_hosts/{name}.os").write_text(text)


def take(folder, known, *others, **more):
    """Another controller takes it; its run has these machines."""
    hosts = {name: {"inventory_hostname": name} for name in [*known, *others]}
    return call(folder / machine_inventory.NAME, hostvars=hosts, known=known, **more)


def test_what_one_controller_hands_on_another_one_has_as_if_it_were_its_own(folder, tmp_path):
    prove(folder, "node-1", public_key("a"))
    hosts = {"node-1": {"ansible_host": "203.0.113.5", "ansible_user": "root"}, "open": {"ansible_host": "h.example"}}
    known = call(folder / machine_inventory.NAME, hosts=hosts)["known"]
    assert known == {
        "node-1": {"address": "203.0.113.5", "host_keys": [public_key("a")], "boot_id": BOOT},
        "open": {"address": "h.example"},
    }
    other = tmp_path / "other"
    assert not take(other, known)["failed"]
    path = other / "known_hosts/node-1.os"
    mine, theirs = path.read_text(), (folder / "known_hosts/node-1.os").read_text()
    assert mine == theirs.replace("run=run-1", "run=another")
    assert ssh_access.proven_in(mine)[0] == BOOT
    assert [os.stat(one).st_mode & 0o777 for one in (path, path.parent)] == [0o600, 0o700]
    assert not (other / "known_hosts/open.os").exists()
    host = {"inventory_hostname": "node-1"}
    entry = machine_inventory.access(host, str(other))
    assert (entry["ansible_host"], entry["ansible_host_key_checking"]) == ("203.0.113.5", True)
    settings = ssh_settings(entry["ansible_ssh_extra_args"])
    assert (settings["hostkeyalias"], settings["userknownhostsfile"]) == ("node-1.os", str(path))
    assert machine_inventory.access({"inventory_hostname": "open"}, str(other)) == {"ansible_host": "h.example"}
    # and on to a third one
    again = call(other / machine_inventory.NAME, hosts={"node-1": entry})["known"]
    assert again == {"node-1": known["node-1"]}


def test_a_machine_that_was_not_proven_and_one_of_an_odd_name_hand_on_no_key(folder):
    (folder / "known_hosts/unproven.os").write_text(f"unproven.os {public_key('a')}\n")
    hosts = {"unproven": {"ansible_host": "203.0.113.5"}, "under_score": {"ansible_host": "203.0.113.6"}, "n": {}}
    hosts["odd"] = {"ansible_host": "{{ lookup('pipe', 'id') }}"}
    known = call(folder / machine_inventory.NAME, hosts=hosts)["known"]
    assert known == {"unproven": {"address": "203.0.113.5"}}


def test_what_this_controller_knows_itself_stays(folder):
    prove(folder, "node-1", public_key("a"))
    before = (folder / "known_hosts/node-1.os").read_text()
    machine_inventory.change(str(folder / machine_inventory.NAME), {"node-1": {"ansible_host": "203.0.113.5"}})
    other = {"address": "203.0.113.9", "host_keys": [public_key("b"), public_key("a")], "boot_id": "0" * 36}
    assert not take(folder, {"node-1": other})["failed"]
    assert (folder / "known_hosts/node-1.os").read_text() == before
    assert machine_inventory.read(str(folder / machine_inventory.NAME)) == {"node-1": {"ansible_host": "203.0.113.5"}}


def test_other_host_keys_than_the_pinned_ones_are_an_error_and_nothing_is_written(folder):
    prove(folder, "node-1", public_key("a"))
    forged = {"address": "203.0.113.9", "host_keys": [public_key("b")], "boot_id": BOOT}
    answer = take(folder, {"node-2": forged, "node-1": forged})
    assert answer["failed"]
    path = folder / "known_hosts/node-1.os"
    assert f"node-1: the host keys that were handed on are others than those in {path}, by which " in answer["msg"]
    assert not (folder / "known_hosts/node-2.os").exists()
    assert not (folder / machine_inventory.NAME).exists()


def test_what_no_controller_can_have_handed_on_is_an_error_of_the_module_too(folder):
    odd = {"../../etc/x": {"host_keys": [public_key("a")], "boot_id": BOOT}}
    answer = take(folder, odd)
    assert answer["failed"]
    assert "'../../etc/x': no machine can have this name" in answer["msg"]


def test_where_the_keys_cannot_be_written_no_machine_is_reached(tmp_path):
    (tmp_path / "file").touch()
    answer = take(tmp_path / "file", {"n": {"host_keys": [public_key("a")], "boot_id": BOOT}})
    assert answer["failed"]
    assert f"{tmp_path / 'file'}" in answer["msg"]


@pytest.mark.parametrize("variable", ["ansible_host_key_checking", "ansible_ssh_host_key_checking"])
def test_a_host_that_says_itself_whether_keys_are_checked_keeps_it(folder, variable):
    assert machine_inventory.is_pinned(HOST, str(folder))
    assert not machine_inventory.is_pinned({**HOST, variable: False}, str(folder))
    assert not machine_inventory.is_pinned({**HOST, "inventory_hostname": "other"}, str(folder))
