# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""robot_release that is interrupted: the same command goes on, and a rescue that a person has booted stays refused."""

import functools
import json
import subprocess

import pytest

from tests.integration.accounts import remote_lab, robot_call
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.long]

NUMBER = 411
DISK = {"kind": "nvme", "size": "3G", "serial": "CUTRELEASE0001"}
SERVERS = [{"number": NUMBER, "disks": [DISK], "memory_mib": 1024}]
BARE = {"kubenode_release": ["cut-1"], "kubenode_wipe": [DISK["serial"]], "kubenode_look_timeout": 60}
CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"


def row(lab):
    return lab.row("number", NUMBER)


def boots(lab):
    return [boot["source"] for boot in row(lab)["boots"]]


def intent(lab):
    return json.loads((lab.testbed.folder / "kubenode/intents/cut-1.json").read_text())


def ssh(lab, command):
    """What a command prints on whatever system answers; empty where none does."""
    options = ["-oBatchMode=yes", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oConnectTimeout=5"]
    words = ["ssh", "-i", str(lab.testbed.private_key), *options, f"root@{row(lab)['address']}", command]
    return subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True).stdout


def boot_id(lab):
    return ssh(lab, "cat /proc/sys/kernel/random/boot_id")


def person_boots_the_rescue(lab):
    at = remote_lab(lab.testbed)
    robot = functools.partial(robot_call, at.robot_endpoint, (at.robot_user, at.robot_password))
    (key,) = [one["key"] for one in robot("GET", "/key")][:1]
    before = boot_id(lab)
    robot("POST", f"/boot/{NUMBER}/rescue", {"os": "linux", "authorized_key[]": key["fingerprint"]})
    robot("POST", f"/reset/{NUMBER}", {"type": "hw"})
    until(lambda: boot_id(lab) not in ("", before), "another boot", pause=0.5)


def test_the_same_command_goes_on_and_a_person_s_rescue_is_refused(dedicated):
    lab = dedicated
    lab.servers({"cut-1": {"kubenode_server_number": NUMBER}}, kubenode_root_device_hints={"serial": DISK["serial"]})
    lab.run("-e", json.dumps({"kubenode_wipe": [DISK["serial"]]})).ok()
    installation = json.loads(ssh(lab, "cat /etc/kubenode/installed.json"))["installation"]
    lab.testbed.playbook = "kubenode.provision.robot_release"
    seen = boots(lab)
    exact = json.dumps({**BARE, "kubenode_wipe": {DISK["serial"]: installation[:8]}})

    first = lab.start("-e", exact)
    first.until("waiting for the rescue")
    first.interrupt()
    until(lambda: boots(lab) == [*seen, "rescue"], "the boot into the rescue")
    assert intent(lab)["consent"] == "release"
    until(lambda: "oldroot" in ssh(lab, "ls -d /root/.oldroot"), "the rescue")

    # The entry is refused there, and the rescue stays that of the run.
    lab.run("-e", json.dumps(BARE)).fails().says("names CUTRELEASE0001, but this was used")
    assert CHANGED not in lab.output
    lab.run("-e", exact, "--check").ok().says("is in its rescue, would empty ", "would switch it off")
    assert CHANGED not in lab.output

    person_boots_the_rescue(lab)
    seen = boots(lab)
    lab.run("-e", exact).fails().says("it is in a rescue that no interrupted run has started")
    assert (boots(lab), row(lab)["powered"]) == (seen, True)

    second = lab.start("-e", exact, "-e", "kubenode_ignore_unreachable=true")
    second.until_task("Wait until the machine is off")
    second.interrupt()
    until(lambda: not row(lab)["powered"], "the power to be off")
    done = lab.run("-e", json.dumps({**BARE, "ansible_timeout": 5})).ok()
    done.says("does not answer, the disks are empty, switched off")
    until(lambda: not row(lab)["powered"], "the power to be off again")
    assert not list((lab.testbed.folder / "kubenode").glob("*/cut-1.*"))
