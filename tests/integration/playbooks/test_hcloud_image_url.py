# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on machines that boot, and what becomes of it when it is disturbed."""

import json
import random
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.integration.testbeds import waiting_command

pytestmark = pytest.mark.nspawn

#: A jump host, as ssh sees it: HOST PORT.
RELAY = """
import os, socket, sys, threading
with open(sys.argv[0] + ".log", "a") as log:
    log.write(" ".join(sys.argv[1:]) + chr(10))
there = socket.create_connection((sys.argv[1], int(sys.argv[2])), 180)
there.settimeout(None)
def send():
    for data in iter(lambda: os.read(0, 65536), b""):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
for data in iter(lambda: there.recv(65536), b""):
    os.write(1, data)
"""
SIX_STEPS = [
    ("", "Initializing"),
    ("Initializing", "EnablingRescue"),
    ("EnablingRescue", "BootingToRescue"),
    ("BootingToRescue", "RunningImageCommand"),
    ("RunningImageCommand", "BootingToRealOS"),
    ("BootingToRealOS", "OperatingSystemRunning"),
]


#: What a machine says that has no turn yet.
WAITS = "waits in its rescue for its turn (kubenode_throttle: 1)"
#: What ssh says when no server was there, and when a busy machine was too slow for it.
VAIN, SLOW = "refused|No route|timed out$", "banner exchange|kex_exchange|^Connection (closed|reset) by"


def test_from_nothing_to_a_verified_system_and_again(nspawn):
    testbed = nspawn.testbed
    ssh, relay = testbed.folder / "ssh", testbed.folder / "relay"
    # a call that did not get in says so; one that did may last as long as the run, and be ended with it
    ssh.write_text(
        f'#!/bin/sh\necho "$*" >>{ssh}.begun\nssh "$@" 2>{ssh}.$$\ncode=$?\ncat {ssh}.$$ >&2\n'
        f'if grep -Eq "{VAIN}" {ssh}.$$; then echo "$*" >>{ssh}.vain\n'
        f'elif grep -Eq "{SLOW}" {ssh}.$$; then echo "$*" >>{ssh}.slow; fi\nexit $code\n'
    )
    notes = [testbed.folder / f"ssh.{what}" for what in ("begun", "vain", "slow")]
    for file in notes:
        file.touch()
    relay.write_text(RELAY)
    for program in (ssh, relay):
        program.chmod(0o755)
    testbed.write_inventory(["first-1", "first-2"], ansible_ssh_executable=str(ssh))
    # one of them is reached through a jump host
    host_vars = testbed.inventory.parent / "host_vars"
    host_vars.mkdir()
    way = f"-o ProxyCommand='{sys.executable} {relay} %h %p'"
    (host_vars / "first-2.yml").write_text(json.dumps({"ansible_ssh_common_args": way}))
    written = nspawn.run().ok()
    begun, vain, slow = (
        Counter(call for call in file.read_text().splitlines() if "HostKeyAlias=first-1." in call) for file in notes
    )
    answered = list((begun - vain - slow).elements())
    asked = [call for call in answered if " -G " in call]
    assert len(asked) == 1, "ssh is asked once where it would go"
    opened = [next(word for word in call.split() if "HostKeyAlias=" in word) for call in answered if call not in asked]
    assert sorted(one.rpartition("=")[2] for one in opened) == ["first-1.os", "first-1.rescue"], "one for each system"
    assert vain.total() <= 2, "a port that was open when it was looked at may be closed when ssh comes, once a boot"
    assert (testbed.folder / "relay.log").read_text().splitlines()[0].endswith(" 22")
    report = nspawn.report
    for machine in report["machines"]:
        assert [(step["from"], step["to"]) for step in machine["transitions"]] == SIX_STEPS
        assert machine["boot_state"] == "OperatingSystemRunning"
        assert nspawn.proof(machine["name"]) == [machine["name"], "made by the bootstrap data"]
        assert nspawn.boots(machine["name"]) == ["rescue", "disk"]
    assert [machine["name"] for machine in report["machines"]] == ["first-1", "first-2"]

    # a later play finds them, and takes no other host key, from any folder
    elsewhere = testbed.folder / "elsewhere"
    elsewhere.mkdir()
    kept = testbed.folder / "kubenode/inventory.yml"
    command = shlex.join(["ansible-playbook", "-i", str(testbed.inventory), "-i", str(kept), "kubenode.provision.node"])
    assert command in nspawn.output
    for machine in report["machines"]:
        host = yaml.safe_load(kept.read_text())["all"]["hosts"][machine["name"]]
        assert (host["ansible_host"], host["kubenode_server_id"]) == (machine["address"], machine["id"])
        assert machine["address"] == testbed.address(machine["name"])
    words = ["ansible", "machines", "-i", str(testbed.inventory), "-i", str(kept), "-m", "raw", "-a", "hostname"]
    assert nspawn.begin(words, elsewhere).wait().rc == 0
    words = ["ansible-playbook", "-i", str(testbed.inventory), "kubenode.provision.node_base", "--check"]
    later = nspawn.begin(words, elsewhere).wait()
    looked = [one["host"] for one in later.results if one["kind"] == "ok" and one["action"].endswith(".node_info")]
    assert set(looked) == {"first-1", "first-2"}, later.output

    # and so does a job of AWX, which has what the job before has handed on, and takes no other host key either
    stats = [one["result"]["ansible_stats"]["data"] for one in written.results if "ansible_stats" in one["result"]]
    (known,) = [one["kubenode_known_machines"] for one in stats if "kubenode_known_machines" in one]
    assert {name: one["address"] for name, one in known.items()} == {
        machine["name"]: machine["address"] for machine in report["machines"]
    }
    forged = testbed.private_key.with_suffix(".pub").read_text()
    known["first-2"]["host_keys"] = [forged]
    job = testbed.folder / "job"
    (job / "inventory").mkdir(parents=True)
    (job / "ansible.cfg").write_text("[defaults]\nhost_key_checking = false\n")
    (job / "known.json").write_text(json.dumps({"kubenode_known_machines": known}))
    machines = yaml.safe_load(testbed.inventory.read_text())
    del machines["machines"]["vars"]["kubenode_dir"]
    machines["machines"]["vars"]["ansible_ssh_args"] = "-C"  # not by a connection that the run before has left open
    (job / "inventory/hosts.yml").write_text(yaml.safe_dump(machines))
    words = ["ansible-playbook", "-i", "inventory/hosts.yml", "-e", "@known.json", *words[3:]]
    after = nspawn.begin(words, job).wait()
    looked = [one["host"] for one in after.results if one["kind"] == "ok" and one["action"].endswith(".node_info")]
    assert set(looked) == {"first-1"}, after.output
    (refused,) = after.of("first-2", "unreachable")
    assert "Host key verification failed" in refused["result"]["msg"]

    through_relay = (testbed.folder / "relay.log").read_text().splitlines()
    nspawn.run().ok()
    assert not nspawn.report["changed"]
    assert "Nothing changed" in nspawn.output
    assert nspawn.boots("first-1") == ["rescue", "disk"]
    looks = (testbed.folder / "relay.log").read_text().splitlines()[len(through_relay) :]
    assert looks == [f"{testbed.address('first-2')} 22"], "the API phase takes the same way"


@pytest.mark.long
def test_dynamic_inventory_finds_the_same_machines(nspawn):
    testbed = nspawn.testbed
    testbed.write_inventory(["dynamic-1"], kubenode_labels={"role": "dynamic"})
    nspawn.run().ok()
    inventory = testbed.folder / "inventory.hcloud.yml"
    inventory.write_text("plugin: hetzner.hcloud.hcloud\nlabel_selector: role=dynamic\ngroups:\n  machines: true\n")
    nspawn.run(inventory=str(inventory)).ok().says("Nothing changed", "dynamic-1 ")


def test_an_interrupted_command_is_attached_to_and_the_disk_is_written_once(nspawn):
    testbed = nspawn.testbed
    commands = testbed.folder / "commands"
    waiting_command(commands)
    variables = {"kubenode_command_dir": str(commands), "kubenode_image_url_command": "image-url-command-slow"}
    # a machine that is being written was let go on before, and is not asked again
    (commands / "ask").write_text("#!/bin/sh\necho asked\n")
    (commands / "ask").chmod(0o755)
    testbed.write_inventory(["cut-1"], kubenode_pre_provision_command="ask", **variables)
    first = nspawn.start("-v")
    first.until("start 1")
    assert first.interrupt().failed
    assert "Run the same command again: it goes on where this one was." in first.output
    report = nspawn.report
    assert (report["interrupted"], report["finished"]) == (True, None)
    assert [(one["name"], one["boot_state"]) for one in report["machines"]] == [("cut-1", "BootingToRescue")]
    assert "The run was interrupted" in testbed.report.with_suffix(".html").read_text()
    assert nspawn.boots("cut-1") == ["rescue"]
    log = testbed.folder / "kubenode/logs/cut-1.pre-provision.log"
    assert log.read_text().endswith(" out asked\n")
    log.unlink()

    testbed.ssh("cut-1", "touch /root/go", "rescue")
    nspawn.run().ok()
    assert nspawn.proof("cut-1") == ["cut-1", "made by the bootstrap data"]
    assert nspawn.boots("cut-1") == ["rescue", "disk"]
    report = nspawn.report
    assert (report["interrupted"], report["check"], report["machines"][0]["verified"]) == (False, False, True)
    assert report["machines"][0]["log_file"].startswith(str(testbed.folder / "kubenode" / "logs"))
    (stdout,) = (testbed.folder / "kubenode" / "logs" / "cut-1").glob("*stdout*")
    text = stdout.read_text()
    assert text.count("start ") == 1
    assert text.rstrip().endswith("IMAGE_URL_DONE")
    assert not log.exists()


def one_writes_and_two_wait(nspawn, names, **variables):
    """A run over three machines, of which one writes until it finds /root/go."""
    path = waiting_command(nspawn.testbed.folder / "turns")
    command = {"kubenode_command_dir": str(path.parent), "kubenode_image_url_command": path.name}
    nspawn.testbed.write_inventory(names, kubenode_throttle=1, **command, **variables)
    run = nspawn.start("-v")
    run.until("start 1")
    run.until(lambda: run.output.count(WAITS) == 2, "two that wait")
    return run


@pytest.mark.long
def test_one_machine_at_a_time_writes(nspawn):
    testbed, names = nspawn.testbed, ["turn-1", "turn-2", "turn-3"]
    first = one_writes_and_two_wait(nspawn, names)
    assert first.interrupt().failed
    (began,) = [name for name in names if testbed.ssh(name, "cat /root/starts || true", "rescue")]

    # what runs already has no turn to wait for, also where no machine may end before it does
    second = nspawn.start("-v")
    second.until(f"{began}: ")
    second.until(lambda: second.output.count("start 1") == 2, "the one that runs, and one of the others")
    for name in names:
        testbed.ssh(name, "touch /root/go", "rescue")
    second.wait().ok()
    machines = {one["name"]: one for one in nspawn.report["machines"]}
    at = {
        name: {(step["from"], step["to"]): step["at"] for step in one["transitions"]} for name, one in machines.items()
    }
    one, other = sorted(
        (steps for name, steps in at.items() if name != began),
        key=lambda steps: ("WaitingInRescue", "RunningImageCommand") in steps,
    )
    assert ("BootingToRescue", "RunningImageCommand") in one
    done = one["RunningImageCommand", "BootingToRealOS"]
    assert done <= other["WaitingInRescue", "RunningImageCommand"]
    for name in names:
        assert nspawn.boots(name) == ["rescue", "disk"]
        assert nspawn.proof(name) == [name, "made by the bootstrap data"]


@pytest.mark.long
def test_a_lost_machine_keeps_no_other_one_from_its_turn(nspawn):
    """One is lost while it writes, one while it waits; the last one is written and proven."""
    testbed, names = nspawn.testbed, ["lost-1", "lost-2", "lost-3"]
    run = one_writes_and_two_wait(nspawn, names, kubenode_command_timeout=100, kubenode_rescue_timeout=120)
    first, last = re.findall(rf"^(lost-\d): {re.escape(WAITS)}", run.output, re.MULTILINE)
    (writer,) = {*names} - {first, last}
    for name in (first, writer):
        testbed.ssh(name, "systemctl --no-block poweroff", "rescue")
    run.until(f"{last}: its turn has come")
    assert re.search(rf"^{writer}: has not answered for [67]\d s", run.output, re.MULTILINE)
    testbed.ssh(last, "touch /root/go", "rescue")
    run.wait().fails()
    machines = {one["name"]: one for one in nspawn.report["machines"]}
    assert {name: one["verified"] for name, one in machines.items() if one["verified"]} == {last: True}
    assert "it was lost while it waited in its rescue, and nothing was written" in machines[first]["reason"]
    assert "SSH did not come back within the limit of 100 s" in machines[writer]["reason"]
    assert [nspawn.boots(name) for name in (first, writer, last)] == [["rescue"], ["rescue"], ["rescue", "disk"]]


@pytest.mark.long
def test_an_interrupted_upload_of_a_large_command_is_continued(nspawn):
    testbed = nspawn.testbed
    commands = testbed.folder / "large"
    path = waiting_command(commands)
    path.write_bytes(path.read_bytes() + b"exit 0\n" + random.Random(1).randbytes(40 << 20))
    variables = {"kubenode_command_dir": str(commands), "kubenode_image_url_command": path.name}
    testbed.write_inventory(["large-1"], **variables)
    first = nspawn.start()
    first.until("large-1: uploaded 16 MiB of 40 MiB of the image command")
    assert first.interrupt().failed
    assert nspawn.boots("large-1") == ["rescue"]

    testbed.ssh("large-1", "touch /root/go", "rescue")
    nspawn.run().ok()
    assert "uploaded 16 MiB" not in nspawn.output
    assert nspawn.proof("large-1") == ["large-1", "made by the bootstrap data"]
    assert nspawn.boots("large-1") == ["rescue", "disk"]


@pytest.mark.long
def test_a_machine_that_misses_its_rescue_is_sent_there_once_more(nspawn):
    testbed = nspawn.testbed
    testbed.write_inventory(["late-1", "late-2"], kubenode_rescue_timeout=600)
    nspawn.fault(point="boot", machine="late-1", effect="ignore_rescue", times=1)
    nspawn.run().ok()
    assert nspawn.boots("late-1") == ["disk", "rescue", "disk"]
    assert nspawn.boots("late-2") == ["rescue", "disk"]
    assert nspawn.proof("late-1") == ["late-1", "made by the bootstrap data"]


@pytest.mark.long
def test_only_reinstall_writes_an_installed_machine_again(nspawn):
    testbed = nspawn.testbed
    testbed.write_inventory(["again-1", "again-2"])
    nspawn.run().ok()
    testbed.ssh("again-1", "touch /etc/old")
    testbed.ssh("again-2", "touch /etc/old")
    nspawn.run("-e", '{"kubenode_reinstall": ["again-1"]}').ok()
    assert testbed.ssh("again-1", "ls /etc/old || true") == ""
    assert testbed.ssh("again-2", "ls /etc/old") == "/etc/old\n"


@pytest.mark.long
def test_one_bad_machine_does_not_fail_the_others(nspawn):
    testbed = nspawn.testbed
    testbed.write_inventory(["good-1", "bad-1"])
    said = {"status": 412, "code": "resource_unavailable", "message": "error during placement"}
    nspawn.fault(point="request", method="POST", path="/servers", times=1, **said)
    nspawn.run().fails()
    report = nspawn.report
    states = sorted((machine["failed"], machine["boot_state"]) for machine in report["machines"])
    assert states[0] == (False, "OperatingSystemRunning")
    assert states[1][0]
    (failed,) = [machine for machine in report["machines"] if machine["failed"]]
    assert "error during placement" in failed["reason"]
    nspawn.run().ok()


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this host has no IPv6")
def test_a_machine_with_ipv6_only_is_written_and_verified(nspawn):
    """Rescue, image and new system have nothing else: IPv4 reaches the metadata service alone."""
    testbed = nspawn.testbed
    image = testbed.image_url().replace(testbed.lab["images_url"], testbed.lab["images_url6"])
    assert image.startswith("http://[2001:db8:")
    testbed.write_inventory(["six-1"], kubenode_enable_ipv4=False, kubenode_image_url=image)
    nspawn.run().ok()
    (machine,) = nspawn.report["machines"]
    assert (machine["boot_state"], machine["verified"]) == ("OperatingSystemRunning", True)
    assert nspawn.boots("six-1") == ["rescue", "disk"]
    there = nspawn.control("POST", "/machines/six-1/enter", {"script": "cat /etc/kubenode-proof"})
    assert "made by the bootstrap data" in there["out"]
    # a second run looks at it by IPv6, and leaves it alone
    nspawn.run().ok()
    (machine,) = nspawn.report["machines"]
    assert (machine["changed"], machine["verified"]) == (False, True)
