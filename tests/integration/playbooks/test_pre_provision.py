# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of the user looks at machines in their rescue and stops one of them."""

import json
import os
import re
import socket
import stat
from pathlib import Path

import pytest

from tests.integration.accounts import cloud_call, disk_marks
from tests.integration.testbeds import NOWHERE

DISKS = [{"kind": "nvme", "size": "3G"}]
PLAYBOOKS = ("robot_image_url", "robot_installimage")
TARBALL = "Debian-1200-bookworm-amd64-base.tar.zst"

#: Says what it finds, and stops the machines whose names begin with "stop" as soon as /root/go is there.
CHECK = """#!/bin/sh
echo "asked as $KUBENODE_MACHINE of $KUBENODE_PROVIDER" | tee -a /root/asked
echo "server=$KUBENODE_SERVER limit=$KUBENODE_LIMIT arguments=$# user=$(id -un) mode=$(stat -c %a "$0")"
echo "login robot:correct-horse"
case $KUBENODE_MACHINE in stop*) [ -e /root/mended ] && exit 0 ;; *) exit 0 ;; esac
while [ ! -e /root/go ]; do sleep 0.2; done
printf 'fan 3 \\033[31mstands still\\n' >&2
exit 3
"""


def program(testbed, script, name="check-hardware"):
    """A program of the user; returns the variables that name it."""
    folder = testbed.folder / "commands"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return {"kubenode_command_dir": str(folder), "kubenode_pre_provision_command": name}


def log_of(testbed, name) -> Path:
    return testbed.folder / "kubenode/logs" / f"{name}.pre-provision.log"


def dedicated_inventory(lab, playbook, hosts, **variables):
    """An ordinary inventory for one of the playbooks for dedicated servers."""
    image = (
        {"kubenode_image": {"name": TARBALL}}
        if playbook == "robot_installimage"
        else {
            "kubenode_image_url": lab.testbed.image_url(),
            "kubenode_image_url_command": "image-url-command-raw-disk",
        }
    )
    shared = {"kubenode_root_device_hints": {"smallest": True}, "kubenode_look_timeout": 4}
    lab.testbed.playbook = f"kubenode.provision.{playbook}"
    lab.testbed.write_groups({"machines": {"hosts": hosts, "vars": {**shared, **image, **variables}}})


# --- before anything is created


def wrong_files(testbed):
    """Three hosts, each with a program that no machine can run, and one with a time limit that is none."""
    commands = testbed.folder / "commands"
    good = program(testbed, "#!/bin/sh\n")
    program(testbed, "#!/bin/sh\r\nexit 0\r\n", "windows")
    (commands / "abroad").symlink_to("/usr/bin/env")
    return {
        "wrong-1": {**good, "kubenode_pre_provision_command": "windows"},
        "wrong-2": {**good, "kubenode_pre_provision_command": "abroad"},
        "wrong-3": {**good, "kubenode_pre_provision_command": str(commands / "nowhere")},
        "wrong-4": {**good, "kubenode_pre_provision_timeout": "soon"},
    }


def refused(lab):
    lab.run().fails().says(
        'wrong-1: kubenode_pre_provision_command "windows": ',
        "has line ends of Windows (CRLF)",
        'wrong-2: kubenode_pre_provision_command "abroad": ',
        "outside of",
        "wrong-3: kubenode_pre_provision_command",
        "there is no",
        "wrong-4: kubenode_pre_provision_timeout 'soon': give a whole number",
        "4 findings, nothing was created or changed",
    )
    assert "Traceback" not in lab.output


def test_files_that_no_machine_can_run_are_refused_before_a_cloud_machine_is_created(operator):
    lab = operator("dry")
    testbed = lab.testbed
    hosts = wrong_files(testbed)
    testbed.image_url = lambda: NOWHERE
    testbed.write_inventory(list(hosts))
    folder = testbed.folder / "host_vars"
    folder.mkdir()
    for name, variables in hosts.items():
        (folder / f"{name}.json").write_text(json.dumps(variables))
    refused(lab)
    assert testbed.machines() == []

    # without them, check mode says what would be, of machines that do not exist
    for path in folder.iterdir():
        path.unlink()
    testbed.write_inventory(["new-1"], **program(testbed, CHECK))
    lab.run("--check", "-v").ok()
    for name in ("check-hardware", "image-url-command-raw-disk"):
        assert re.search(rf"would run \S*/{name} in the rescue", lab.output)
    assert testbed.machines() == []
    assert not log_of(testbed, "new-1").exists()


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_files_that_no_machine_can_run_are_refused_before_a_dedicated_server_is_touched(dedicated, playbook):
    lab = dedicated("dry", [{"number": number, "disks": DISKS} for number in range(401, 405)])
    hosts = wrong_files(lab.testbed)
    for number, variables in enumerate(hosts.values(), 401):
        variables["kubenode_server_number"] = number
    lab.testbed.image_url = lambda: NOWHERE
    dedicated_inventory(lab, playbook, hosts)
    lab.forget_requests()
    refused(lab)
    assert lab.asked() == []


# --- on machines that boot


@pytest.mark.long
@pytest.mark.nspawn
def test_one_cloud_machine_is_stopped_and_the_other_one_goes_on(nspawn):
    testbed = nspawn.testbed
    variables = program(testbed, CHECK)
    hidden = {"kubenode_registry_token": "robot:correct-horse"}
    testbed.write_inventory(["pass-1", "stop-1"], **variables, **hidden)
    running = nspawn.start()
    log = log_of(testbed, "stop-1")
    running.until(lambda: log.exists() and "asked as stop-1" in log.read_text(), "the question")
    before = disk_marks(nspawn, "stop-1")
    testbed.ssh("stop-1", "touch /root/go", "rescue")
    run = running.wait().fails()
    assert disk_marks(nspawn, "stop-1") == before
    assert nspawn.boots("stop-1") == ["rescue"]
    assert nspawn.proof("pass-1") == ["pass-1", "made by the bootstrap data"]
    machines = nspawn.machines
    assert (machines["pass-1"]["verified"], machines["pass-1"]["failed"]) == (True, False)
    assert (machines["stop-1"]["boot_state"], machines["stop-1"]["failed"]) == ("ProvisioningFailed", True)
    reason = "the pre-provision command stopped this machine before this run wrote anything: it ended with exit code 3."
    assert machines["stop-1"]["reason"].startswith(reason)
    assert "fan 3 \\x1b[31mstands still" in run.output
    assert "correct-horse" not in run.output

    lines = [line.split(" ", 2)[1:] for line in log.read_text().splitlines()]
    (server,) = cloud_call(testbed.lab["endpoint"], testbed.token, "GET", "/servers?name=stop-1")["servers"]
    assert sorted(text for stream, text in lines if stream == "out") == [
        "asked as stop-1 of hcloud",
        "login ********",
        f"server={server['id']} limit=300 arguments=0 user=root mode=700",
    ]
    assert ["err", "fan 3 \x1b[31mstands still"] in lines
    assert stat.S_IMODE(os.stat(log).st_mode) == 0o600

    # once a run; the next run asks again, and a repaired machine goes on. A machine that is done is not asked
    asked = testbed.ssh("stop-1", "cat /root/asked; touch /root/mended", "rescue")
    assert asked == "asked as stop-1 of hcloud\n"
    written = log_of(testbed, "pass-1").stat().st_mtime_ns
    nspawn.run().ok()
    assert nspawn.proof("stop-1") == ["stop-1", "made by the bootstrap data"]
    assert nspawn.boots("stop-1") == ["rescue", "disk"]
    assert log_of(testbed, "pass-1").stat().st_mtime_ns == written


def speaks_ssh(address):
    """Whether an SSH server greets on port 22."""
    try:
        with socket.create_connection((address, 22), 60) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@pytest.mark.nspawn
@pytest.mark.long
def test_a_machine_that_misses_its_rescue_is_asked_there_on_its_second_try_or_given_up(nspawn):
    testbed = nspawn.testbed
    testbed.write_inventory(["late-1", "never-1"], kubenode_rescue_timeout=180, **program(testbed, CHECK))
    for name, times in (("late-1", 1), ("never-1", 2)):
        nspawn.fault(point="boot", machine=name, effect="ignore_rescue", times=times)
    nspawn.run().fails()
    assert nspawn.boots("late-1") == ["disk", "rescue", "disk"]
    assert nspawn.proof("late-1") == ["late-1", "made by the bootstrap data"]
    assert "asked as late-1" in log_of(testbed, "late-1").read_text()
    assert nspawn.boots("never-1") == ["disk", "disk"]
    reason = nspawn.machines["never-1"]["reason"]
    # the second try cuts the power of a first boot: either its host keys were on the disk by then, or its sshd is gone
    if speaks_ssh(testbed.address("never-1")):
        assert "another system answers instead of the rescue (hostname 'never-1'" in reason
    else:
        assert "the rescue did not answer within 180 s; at last: no SSH server answers" in reason
    assert "The rescue: " in reason
    assert not log_of(testbed, "never-1").exists()


@pytest.mark.nspawn
@pytest.mark.long
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_dedicated_server_that_is_stopped_stays_in_quarantine_and_keeps_its_disks(dedicated, playbook):
    special = {"image": "debian", "powered": False}
    servers = [
        {"number": number, "disks": [{"kind": "sata", "size": "5G"}], "memory_mib": 2048} for number in (411, 412)
    ]
    lab = dedicated("nspawn", [servers[0], {**servers[1], **special}])
    testbed = lab.testbed
    (disk,) = lab.row("number", 412)["disks"]
    hosts = {
        "pass-1": {"kubenode_server_number": 411},
        # a word for its disk changes nothing: nothing is emptied before the program let it go on
        "stop-1": {"kubenode_server_number": 412, "kubenode_wipe": [disk["serial"]]},
    }
    more = {"kubenode_first_contact": "reset", **program(testbed, CHECK.replace("[ ! -e /root/go ]", "false"))}
    dedicated_inventory(lab, playbook, hosts, **more)
    before = disk_marks(lab, 412)
    lab.run().fails()
    assert disk_marks(lab, 412) == before
    assert lab.proof("pass-1") == ["pass-1", "made by the bootstrap data"]
    assert lab.machines["pass-1"]["verified"]
    assert "server=412" in log_of(testbed, "stop-1").read_text()
    assert "asked as stop-1 of robot" in log_of(testbed, "stop-1").read_text()
    entry = json.loads((testbed.folder / "kubenode/quarantine/stop-1.json").read_text())
    assert "the pre-provision command stopped this machine" in entry["reason"]
    assert "disks" not in json.loads((testbed.folder / "kubenode/intents/stop-1.json").read_text())

    boots = lab.row("number", 412)["boots"]
    lab.forget_requests()
    lab.run("--limit", "stop-1").fails().says("in quarantine since")
    assert lab.asked() == []
    testbed.ssh("stop-1", "touch /root/mended", "rescue")
    words = '{"kubenode_clear_quarantine": ["stop-1"], "kubenode_look_timeout": 240}'
    lab.run("--limit", "stop-1", "-e", words).ok()
    assert lab.proof("stop-1") == ["stop-1", "made by the bootstrap data"]
    assert [boot["source"] for boot in lab.row("number", 412)["boots"]] == [one["source"] for one in boots] + ["disk"]
