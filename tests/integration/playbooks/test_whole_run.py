# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of playbooks that end before any machine, and what they say of it; no lab is needed.

With the collection as a user has it: built, and installed from the file.
"""

import json
import os
import shlex

import pytest
import yaml

URL = {"kubenode_image_url": "https://i.example/x.raw", "kubenode_image_url_command": "image-url-command-raw-disk"}


def test_an_error_of_the_whole_run_is_of_no_machine(user):
    """It is found once for all hosts, whatever strategy the user has set."""
    (user.stands / "ansible.cfg").write_text("[defaults]\nstrategy = free\n")
    hosts = {f"n-{number}": {} for number in (1, 2, 3)}
    own = {"ansible_ssh_private_key_file": str(user.key), "kubenode_dir": str(user.stands / "kept")}
    done = user.run("hcloud_image_url", hosts=hosts, kubenode_ssh_keys=["k"], **own, **URL).fails()
    asked = [one["host"] for one in done.results if one["action"].endswith(".hcloud_machine")]
    assert len(asked) == 1, done.output
    lines = [line for line in done.output.splitlines() if line.startswith(("Run failed", "Not attempted"))]
    assert len(lines) == 2, done.output
    assert lines[0].startswith("Run failed before any machine: api_token: missing")
    assert lines[1] == "Not attempted: n-1, n-2, n-3"
    # no sentence of Ansible's about the task comes before the reason
    assert "failed_when" not in done.output
    assert user.report["not_attempted"] == ["n-1", "n-2", "n-3"]
    assert user.report["machines"] == []


def test_a_run_without_a_host_says_so(user):
    user.run("hcloud_image_url", hosts={}).says("nothing was done: no host of the inventory")
    assert not user.report_file.exists()


@pytest.mark.parametrize(
    ("playbook", "flags", "said"),
    [
        ("node_base", ["--tags", "no-such"], "but for those that check and lock, has the tags no-such"),
        ("node_base", ["--start-at-task", "No such"], "no task of this playbook has the name 'No such'"),
    ],
)
def test_a_run_without_a_task_says_so(user, playbook, flags, said):
    done = user.run(playbook, *flags, kubenode_dir="kubenode").ok().says("nothing was done")
    assert said in " ".join(done.output.split())
    assert "no host of the inventory" not in done.output


@pytest.mark.parametrize(
    ("playbook", "said"),
    [
        ("site", "nothing says how n-1 is made"),
        ("hcloud_delete", "kubenode_delete names no machine"),
        ("robot_release", "kubenode_release names no machine"),
        ("node_base", "kubenode_notify_url"),
    ],
)
def test_a_tag_leaves_out_no_check(user, playbook, said):
    done = user.run(playbook, "--tags", "base,kernel", kubenode_notify_url="no address").fails().says(said)
    assert "HostVarsVars" not in done.output
    assert "undefined" not in done.output


def test_a_step_of_base_alone_upgrades_no_node(user):
    done = user.run("node_upgrade", "--tags", "kernel", base_kubernetes_version="1.36.4").fails()
    done.says("Run node_upgrade without them; node_base runs single steps of base. Nothing was changed")


@pytest.fixture
def ssh(user):
    """A program that Ansible takes for ssh: it reaches nothing, and notes its arguments."""
    ssh = user.stands / "ssh"
    ssh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{shlex.quote(str(ssh))}.log\nexit 255\n')
    ssh.chmod(0o755)
    return ssh


@pytest.mark.parametrize(("own", "flags"), [({}, []), ({"ansible_host": "127.0.0.2"}, []), ({}, ["--tags", "kernel"])])
def test_a_machine_of_an_earlier_run_is_reached_as_that_run_did(user, ssh, own, flags):
    kept, log = user.inventory / "kubenode", ssh.with_name("ssh.log")
    (kept / "known_hosts").mkdir(parents=True)
    (kept / "known_hosts/n-1.os").write_text("n-1.os ssh-ed25519 AAAA\n")
    entry = {"all": {"hosts": {"n-1": {"ansible_host": "127.0.0.1", "kubenode_server_id": 7}}}}
    (kept / "inventory.yml").write_text("# Written by kubenode.provision: how\n" + yaml.safe_dump(entry))
    variables = {"ansible_ssh_executable": str(ssh), "kubenode_dir": "kubenode", "ansible_user": "admin"}
    user.run("node_base", "--check", *flags, hosts={"n-1": own, "n-2": {}}, **variables).fails()
    calls = log.read_text().splitlines()
    mine, other = (
        [call for call in calls if name in call.split()] for name in (own.get("ansible_host", "127.0.0.1"), "n-2")
    )
    assert mine, calls
    assert other
    known = os.path.join(kept, "known_hosts", "n-1.os")
    assert all(f'-oUserKnownHostsFile="{known}" -oHostKeyAlias=n-1.os' in call for call in mine)
    assert not any("HostKeyAlias" in call for call in other)


def known(key: str, boot: str = "3f0c8a52-8a4e-4a53-9d0a-3d0a5f6a3a11") -> str:
    """What the job before has handed on of n-1, in words of a command line."""
    one = {"address": "127.0.0.3", "host_keys": [key], "boot_id": boot}
    return json.dumps({"kubenode_known_machines": {"n-1": one, "of-another-job": one}})


@pytest.mark.parametrize("playbook", ["node_base", "node_reboot"])
def test_a_job_with_an_empty_folder_reaches_a_machine_as_the_job_before_did(user, ssh, playbook):
    """Also where Ansible is set to take any host key, as it is in AWX."""
    (user.stands / "ansible.cfg").write_text("[defaults]\nhost_key_checking = false\n")
    variables = {"ansible_ssh_executable": str(ssh), "ansible_user": "root"}
    key = " ".join(user.public_key.split()[:2])
    user.run(playbook, "--check", "-e", known(key), hosts={"n-1": {}, "n-2": {}}, **variables)
    calls = ssh.with_name("ssh.log").read_text().splitlines()
    mine, other = ([call for call in calls if name in call.split()] for name in ("127.0.0.3", "n-2"))
    pin = user.inventory / "kubenode/known_hosts/n-1.os"
    assert mine, calls
    assert all(f'-oUserKnownHostsFile="{pin}" -oHostKeyAlias=n-1.os' in call for call in mine)
    assert not [call for call in mine if "StrictHostKeyChecking=no" in call]
    assert [call for call in other if "StrictHostKeyChecking=no" in call] == other
    assert pin.read_text().splitlines()[1:] == [f"n-1.os {key}"]
    assert [path.name for path in pin.parent.iterdir()] == [pin.name]


def test_a_forged_key_is_refused_before_any_machine_is_contacted(user, ssh):
    variables = {"hosts": {"n-1": {}}, "ansible_ssh_executable": str(ssh), "ansible_user": "root"}
    key = user.public_key.split()[1]
    done = user.run("node_base", "--check", "-e", known(f"@cert-authority * {key}"), **variables).fails()
    done.says("kubenode_known_machines: 'n-1': host_keys: ")
    # another one than the one that this controller knows
    pin = user.inventory / "kubenode/known_hosts/n-1.os"
    pin.parent.mkdir(parents=True)
    pin.write_text(f"n-1.os {user.new_key('other').with_suffix('.pub').read_text()}")
    done = user.run("node_base", "--check", "-e", known(user.public_key), **variables).fails()
    done.says("n-1: the host keys that were handed on are others than those in ")
    assert not ssh.with_name("ssh.log").exists()


def test_no_machine_has_a_warning_about_its_python(user):
    """The host is this one, which is looked at and not changed."""
    variables = {"ansible_connection": "local", "kubenode_dir": str(user.stands / "kept")}
    done = user.run("node_base", "--check", hosts={"n-1": {}}, **variables)
    looked = [one["task"].rpartition("| ")[2] for one in done.of("n-1")]
    assert "Read the facts" in looked, done.output
    assert "Python interpreter" not in " ".join(done.output.split())


def test_an_image_that_was_not_made_is_a_failure_of_the_run(user):
    """Its playbook works on localhost, which is no machine."""
    matrix = {"kubernetes": ["1.36.4"], "base": ["debian-13"], "architecture": ["x86"]}
    variables = {"kubenode_image_matrix": matrix, "kubenode_dir": str(user.stands / "kept")}
    done = user.run("node_image_snapshot", hosts={}, **variables).fails()
    (line,) = [line for line in done.output.splitlines() if line.startswith("Run failed")]
    assert line.startswith("Run failed before any machine: "), done.output
    assert user.report["errors"]
    assert user.report["not_attempted"] == []
