# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""robot_rescue against machines that really boot: who answers is proved, and what does not come is escalated."""

import sys

import pytest

from tests.integration.controller import pinned
from tests.waiting import until

pytestmark = pytest.mark.nspawn

#: Seconds for a step that must succeed on a machine under load.
LONG = 240
LIMITS: dict[str, int] = {"ssh_timeout": LONG, "sw_timeout": LONG, "hw_timeout": LONG, "power_timeout": LONG}
#: The same, for machines that let us in: the look at one ends as soon as it answers.
THERE = {**LIMITS, "look_timeout": LONG}
#: Seconds for a step that must not succeed, also when its machine is slow.
SHORT = 10
RECORD = '{"machine": "n1", "image_url": "https://images.example.com/a.raw"}'

#: In place of a jump host: passes bytes on between its standard streams and an address.
RELAY = """
import os, socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=180)
line.settimeout(None)
def up():
    while True:
        data = os.read(0, 65536)
        if not data:
            os._exit(0)
        line.sendall(data)
threading.Thread(target=up, daemon=True).start()
while True:
    data = line.recv(65536)
    if not data:
        os._exit(0)
    os.write(1, data)
"""


def ssh(account, name, command):
    """Run a command on a machine, trusting only what robot_rescue has pinned."""
    return account.ssh(name, command, pinned(account.pins / f"{name}.rescue")).strip()


def let_us_in(account, name, record=None):
    """From its rescue, let a machine's own system know our key, and be one of ours if there is a record."""
    public = account.public_key.strip()
    script = (
        'set -e; root=$(blkid -t LABEL=root -o device | head -n 1); test -n "$root" || root=$(lsblk -nrpo NAME,FSTYPE'
        " | awk '$2 ~ /ext4/ {print $1; exit}'); mkdir -p /mnt/t; mount $root /mnt/t; mkdir -p -m 700 /mnt/t/root/.ssh;"
        f" echo '{public}' > /mnt/t/root/.ssh/authorized_keys;"
    )
    if record:
        script += f" mkdir -p /mnt/t/etc/kubenode; echo '{record}' > /mnt/t/etc/kubenode/installed.json;"
    ssh(account, name, script + " umount /mnt/t; sync")


def test_to_the_rescue_in_three_requests_and_one_reset_each(real_account):
    account = real_account
    # Empty disks: of a system that goes down and shows one more host key, Robot is asked once more.
    account.add("n1")
    account.add("n2", reset=["power", "hw", "man"], uefi=True)
    account.add("n3", reset=["hw"])
    account.robot("POST", "/key", {"name": account.folder.name, "data": account.public_key})
    account.forget_requests()
    run = account.rescue(None, "-vvv", **LIMITS).ok()
    counted = account.requests()
    assert len(counted) == run.result["api_calls"] == 3 + 3 * 3
    for name, result in run.machines.items():
        assert len(account.resets(name)) == 1
        assert account.boots(name)[-1] == "rescue"
        assert (result["in_rescue"], result["armed"], result["hostname"]) == (True, False, "rescue")
        reported = account.robot("GET", f"/boot/{account.numbers[name]}/rescue/last")["rescue"]["host_key"]
        assert len(result["host_keys"]) == len(reported) == 3
        # Only the proven rescue is behind this connection.
        assert ssh(account, name, "cat /proc/sys/kernel/random/boot_id") == result["boot_id"]
    assert account.pins.stat().st_mode & 0o077 == 0
    assert account.key.read_text().splitlines()[1] not in run.output

    account.forget_requests()
    again = account.rescue(run.result["machines"], **THERE)
    assert not again.result["changed"]
    assert [(one["method"], one["path"]) for one in account.requests()] == [("GET", "/server")]
    for name, result in again.machines.items():
        assert (result["boot_id"], result["host_keys"]) == (
            run.machines[name]["boot_id"],
            run.machines[name]["host_keys"],
        )
    # Without what the first run knows, Robot is asked whose rescue it is.
    bare = account.rescue(account.machines("n1"), **THERE)
    assert (bare.result["changed"], bare.result["api_calls"]) == (False, 2)
    assert bare.machines["n1"]["host_keys"] == run.machines["n1"]["host_keys"]


@pytest.mark.long
def test_systems_that_let_us_in_are_left_alone_and_rebooted_by_ssh_on_demand(real_account):
    account = real_account
    account.add_installed("ours", "foreign")
    account.rescue(**LIMITS).ok()
    let_us_in(account, "ours", RECORD)
    let_us_in(account, "foreign")
    left = account.rescue(state="os", **THERE).ok()
    assert left.machines["ours"]["installed_record"]["machine"] == "n1"
    assert left.machines["foreign"]["installed_record"] is None
    for result in left.machines.values():
        assert [change["to"] for change in result["transitions"]] == ["BootingToRealOS", "OperatingSystemRunning"]
    resets = {name: account.resets(name) for name in account.numbers}

    alone = account.rescue(**THERE)
    for name, result in alone.machines.items():
        assert (result["changed"], result["installed"], result["in_rescue"]) == (False, True, False)
        assert result["boot_state"] == "OperatingSystemRunning"
        assert result["boot_id"] == left.machines[name]["boot_id"]
    late = [{**account.machines("ours")[0], "boot_state": "BootingToRescue"}]
    assert account.rescue(late, rearm=True, **LIMITS).machines["ours"]["installed"]
    assert {name: account.resets(name) for name in account.numbers} == resets

    planned = account.rescue(None, "--check", reinstall=["ours"], **THERE)
    assert planned.machines["ours"]["msg"] == "would arm the rescue and reboot by SSH"
    account.forget_requests()
    back = account.rescue(reinstall=["ours", "foreign"], **THERE).ok()
    for name, result in back.machines.items():
        assert (result["in_rescue"], result["previous_boot_id"]) == (True, left.machines[name]["boot_id"])
        assert [reset["way"] for reset in result["resets"]] == ["ssh"]
    assert {name: account.resets(name) for name in account.numbers} == resets
    assert account.requests("POST", "/reset") == []


@pytest.mark.long
def test_a_fleet_in_trouble_gets_there_by_the_next_way_or_says_what_was_tried(real_account):
    account = real_account
    account.add_installed("deaf", memory_mib=512)
    account.add_installed("missed", "spent", reset=["hw"])
    account.add("false", "untold", reset=["hw"])
    account.add("off", powered=False, reset=["hw", "power"])
    account.add("mute", powered=False, reset=["sw", "hw", "power"], operating_status=False)
    account.add("never", reset=["hw"], wol=False)
    # A rescue that was armed, and booted, and left again before anybody came.
    spent = account.rescue(account.machines("spent"), prove=False).machines["spent"]
    until(lambda: account.boots("spent")[-1] == "rescue", "its rescue")
    account.reset("spent", "hw")
    until(lambda: account.boots("spent")[-1] == "disk", "its disk", show=lambda: account.boots("spent"))
    until(lambda: account.shown_keys("spent"), "the system on its disk")
    account.fault(point="boot", machine="deaf", effect="deaf")
    account.fault(point="boot", machine="missed", effect="ignore_rescue")
    account.fault(point="boot", machine="never", effect="dead", times=9)
    account.fault(point="boot", machine="false", effect="other_host_keys")
    account.fault(point="boot", machine="untold", effect="host_keys_missing")
    account.forget_requests()
    # Those that a hard reset brings there, and those that it does not.
    machines = [spent, *account.machines("deaf", "missed", "false", "untold")]
    # Two of them boot a system that does not let us in, which is no reason to give up before the time is over.
    brought = {**THERE, "sw_timeout": SHORT, "hw_timeout": 180}
    run = account.rescue(machines, rearm=True, on_error="report", **brought)
    others = account.machines("off", "mute", "never")
    in_vain = {**LIMITS, "sw_timeout": SHORT, "hw_timeout": SHORT}
    found = {**run.machines, **account.rescue(others, rearm=True, on_error="report", **in_vain).machines}

    ways = {name: account.resets(name) for name in account.numbers}
    assert ways.pop("deaf") == ["sw", "hw"]
    assert ways.pop("off") == ["hw", "power"]
    assert ways.pop("mute") == ["sw", "hw", "power"]
    assert ways.pop("missed") == ["hw", "hw"]
    # The one in the middle was not ours.
    assert ways.pop("spent") == ["hw", "hw", "hw"], found["spent"]["msg"]
    assert ways.pop("never") == ["hw", "hw"]
    arrived = ["deaf", "off", "mute", "missed", "spent"]
    for name in arrived:
        result = found[name]
        assert result["in_rescue"], result["msg"]
        assert len(result["host_keys"]) == 3
        assert account.boots(name)[-1] == "rescue"
    # Armed once, but for the one whose shot was spent.
    armed = {name: len(account.requests("POST", f"/boot/{number}/")) for name, number in account.numbers.items()}
    assert armed == dict.fromkeys(account.numbers, 1)

    never = found["never"]
    assert (never["failed"], never["permanent"], never["boot_state"]) == (True, True, "ProvisioningFailed")
    assert never["msg"].count("hw at 20") == 2
    assert "the rescue was still armed" in never["msg"]
    assert "SSH does not answer" in never["msg"]
    assert "The rescue is disarmed: the next boot leads to the disk" in never["msg"]
    assert not never["armed"]
    assert account.rescue_of("never")["active"] is False

    false = found["false"]
    assert (false["failed"], false["permanent"], false["host_keys"]) == (True, True, [])
    assert "none of those Robot reports" in false["msg"]
    assert not (account.pins / "false.rescue").exists()

    untold = found["untold"]
    assert (untold["failed"], untold["permanent"]) == (True, False)
    assert "accept-new" in untold["msg"]
    # It is in its rescue; consent is all that was missing.
    trusted = account.rescue(account.machines("untold"), host_key_checking="accept-new", **THERE).ok()
    result = trusted.machines["untold"]
    assert (result["in_rescue"], result["host_keys"], trusted.result["api_calls"]) == (True, [], 1)
    assert ssh(account, "untold", "cat /proc/sys/kernel/hostname") == "rescue"


@pytest.mark.long
def test_resets_whose_answers_were_lost_are_looked_into(real_account):
    account = real_account
    account.add("done", "undone")
    for name, after_effect in (("done", True), ("undone", False)):
        path = f"/reset/{account.numbers[name]}"
        account.fault(point="request", api="robot", method="POST", path=path, drop=True, after_effect=after_effect)
    account.forget_requests()
    run = account.rescue(**LIMITS).ok()
    for name, count in (("done", 1), ("undone", 2)):
        assert run.machines[name]["in_rescue"]
        assert len(account.requests("POST", f"/reset/{account.numbers[name]}")) == count
        assert account.resets(name) == ["sw"]


@pytest.mark.long
def test_a_late_machine_is_handed_back_and_gone_on_with(real_account):
    account = real_account
    account.add("late", "slow", "quick", reset=["hw"])
    account.fault(point="boot", machine="late", effect="dead")
    account.fault(point="boot", machine="slow", effect="slow", delay=70)
    first = account.rescue(give_back_after=60, **LIMITS).ok()
    assert first.machines["quick"]["in_rescue"]
    for name in ("late", "slow"):
        result = first.machines[name]
        assert (result["failed"], result["in_rescue"], result["armed"]) == (False, False, True)
        assert (result["boot_state"], result["changed"]) == ("BootingToRescue", True)
        assert "hw at 20" in result["msg"]

    handed_back = [first.machines[name] for name in ("late", "slow")]
    second = account.rescue(handed_back, rearm=True, **LIMITS).ok()
    assert account.resets("late") == ["hw", "hw"]
    # It only needed time.
    assert account.resets("slow") == ["hw"]
    for result in second.machines.values():
        assert result["in_rescue"]
        assert result["transitions"] == []


@pytest.mark.long
def test_the_way_through_a_jump_host(real_account):
    """ssh-keyscan knows no jump hosts; the host keys are proven without it."""
    account = real_account
    account.add("n1")
    relay = account.folder / "relay.py"
    relay.write_text(RELAY)
    run = account.rescue(ssh_args=f"-o ProxyCommand='{sys.executable} {relay} %h %p'", **LIMITS).ok()
    assert run.machines["n1"]["in_rescue"]
    assert len(run.machines["n1"]["host_keys"]) == 3
