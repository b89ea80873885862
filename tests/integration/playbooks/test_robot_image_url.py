# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on dedicated servers that boot, and what becomes of it when it is disturbed."""

import pytest

from tests.integration.accounts import disk_marks
from tests.integration.testbeds import waiting_command
from tests.waiting import until

pytestmark = pytest.mark.nspawn

TWO_DISKS = [{"kind": "nvme", "size": "3G"}, {"kind": "sata", "size": "4G", "rotational": True}]
#: Each test has servers of its own: what one leaves on its disks does not matter to others.
NUMBERS = {
    "first-1": 101, "first-2": 102, "cut-1": 103, "foreign-1": 104, "mended-1": 105, "imposter-1": 106,
    "unnamed-1": 107, "late-1": 108, "early-1": 109, "swapped-1": 110,
}  # fmt: skip
TWINS = [{"kind": "nvme", "size": "3G"}] * 2
SPECIAL = {"foreign-1": {"image": "debian", "powered": False}, "swapped-1": {"disks": TWINS, "swaps_letters": True}}
SERVERS = [
    {"number": number, "disks": TWO_DISKS, "memory_mib": 1024, **SPECIAL.get(name, {})}
    for name, number in NUMBERS.items()
]
FIVE_STEPS = [
    ("", "EnablingRescue"),
    ("EnablingRescue", "BootingToRescue"),
    ("BootingToRescue", "RunningImageCommand"),
    ("RunningImageCommand", "BootingToRealOS"),
    ("BootingToRealOS", "OperatingSystemRunning"),
]
#: For runs whose machines let us in: the look at one ends as soon as it answers.
THERE = ("-e", '{"kubenode_look_timeout": 240}')


@pytest.fixture(scope="module")
def lab(dedicated):
    return dedicated("nspawn", SERVERS)


def inventory(lab, *names, **variables):
    """An ordinary inventory of some of the servers."""
    hosts = {name: {"kubenode_server_number": NUMBERS[name]} for name in names}
    lab.servers(hosts, **{"kubenode_root_device_hints": {"smallest": True}, **variables})


@pytest.fixture(autouse=True)
def hour_of_its_own(lab):
    """The tests of this module share one lab; an hour of Robot allows 50 resets in all."""
    lab.control("DELETE", "/robot/limits")


def machine(lab, name):
    return lab.row("number", NUMBERS[name])


def boots(lab, name):
    return [boot["source"] for boot in machine(lab, name)["boots"]]


def resets(lab, name):
    return [reset["type"] for reset in machine(lab, name)["resets"]]


def disks(lab, name):
    return disk_marks(lab, NUMBERS[name])


def test_from_empty_disks_to_verified_systems_and_again(lab):
    inventory(lab, "first-1", "first-2")
    before = {name: disks(lab, name) for name in ("first-1", "first-2")}
    lab.forget_requests()
    lab.run().ok()
    for name in ("first-1", "first-2"):
        assert [(step["from"], step["to"]) for step in lab.machines[name]["transitions"]] == FIVE_STEPS
        assert lab.proof(name) == [name, "made by the bootstrap data"]
        assert boots(lab, name)[-2:] == ["rescue", "disk"]
        assert len(resets(lab, name)) == 1
        assert machine(lab, name)["name"] == name
        # The larger disk was not asked for.
        assert disks(lab, name)[1] == before[name][1]
    fleet = [one for one in lab.asked("robot") if one["path"] in ("/server", "/key", "/reset")]
    assert len(lab.asked("robot")) - len(fleet) <= 2 * 4
    lab.forget_requests()
    # A job of AWX begins without what the job before has kept of the machines.
    kept = lab.testbed.folder / "kubenode/inventory.yml"
    kept.unlink()
    lab.run(*THERE).ok().says("changed=0")
    assert kept.exists()
    assert not [one for one in lab.asked("robot") if one["method"] != "GET"]
    # A node that was proven and is silent now may be down for a reason: it is not reset.
    lab.testbed.ssh("first-2", "systemctl stop ssh.socket ssh.service")
    lab.run().fails().says("an earlier run proved its new system")
    assert len(resets(lab, "first-2")) == 1
    assert boots(lab, "first-2")[-2:] == ["rescue", "disk"]


@pytest.mark.long
def test_an_interrupted_command_is_attached_to_and_the_disk_is_written_once(lab):
    folder = lab.testbed.folder / "slow"
    waiting_command(folder)
    inventory(lab, "cut-1", kubenode_image_url_command="image-url-command-slow", kubenode_command_dir=str(folder))
    log = lab.testbed.folder / "kubenode/logs/cut-1/image-url-command.log"
    first = lab.start()
    first.until(lambda: log.exists() and "start 1" in log.read_text(), "the start of the command")
    assert first.interrupt().failed
    lab.testbed.ssh("cut-1", "touch /root/go", "rescue")
    lab.run(*THERE).ok()
    assert boots(lab, "cut-1")[-2:] == ["rescue", "disk"]
    assert len(resets(lab, "cut-1")) == 1
    assert log.read_text().count("start ") == 1
    assert lab.proof("cut-1") == ["cut-1", "made by the bootstrap data"]


@pytest.mark.long
def test_a_disk_with_a_foreign_system_is_written_only_when_wipe_names_it(lab):
    (first, _second) = machine(lab, "foreign-1")["disks"]
    inventory(lab, "foreign-1")
    before = disks(lab, "foreign-1")
    lab.run().fails().says(first["serial"], "wipe", "Debian")
    assert disks(lab, "foreign-1") == before
    # In check mode the user sees what would be erased, and nothing is.
    inventory(lab, "foreign-1", kubenode_wipe=[first["serial"]])
    lab.run("--check", "--diff", *THERE).ok().says(first["serial"])
    assert disks(lab, "foreign-1") == before
    lab.run(*THERE).ok()
    assert lab.proof("foreign-1") == ["foreign-1", "made by the bootstrap data"]
    assert disks(lab, "foreign-1")[1] == before[1]


@pytest.mark.long
def test_a_machine_with_a_permanent_error_stays_in_quarantine_until_it_is_mended(lab):
    inventory(lab, "mended-1", kubenode_root_device_hints={"serial": "NOT-THERE"})
    lab.run().fails().says("NOT-THERE", "mended-1: in quarantine now")
    lab.forget_requests()
    inventory(lab, "mended-1")
    lab.run().fails().says("in quarantine since", "1 failed\n")
    ((failed, reason),) = [(one["failed"], one["reason"]) for one in lab.report["machines"]]
    assert (failed, reason.startswith("in quarantine since")) == (True, True)
    assert lab.asked("robot") == []
    lab.run("-e", '{"kubenode_clear_quarantine": ["mended-1"]}', *THERE).ok()
    assert lab.proof("mended-1") == ["mended-1", "made by the bootstrap data"]


@pytest.mark.long
def test_a_rescue_with_other_host_keys_than_the_api_reports_gets_nothing(lab):
    lab.fault(point="boot", machine=str(NUMBERS["imposter-1"]), effect="other_host_keys")
    before = disks(lab, "imposter-1")
    inventory(lab, "imposter-1")
    lab.run().fails().says("SHA256:")
    assert disks(lab, "imposter-1") == before
    assert "imposter-1.json" in [path.name for path in (lab.testbed.folder / "kubenode/quarantine").iterdir()]


@pytest.mark.long
def test_a_name_that_cannot_be_changed_costs_no_second_installation(lab):
    said = {"status": 400, "code": "INVALID_INPUT", "times": 50}
    lab.fault(point="request", api="robot", method="POST", path=f"/server/{NUMBERS['unnamed-1']}", **said)
    inventory(lab, "unnamed-1")
    lab.run().fails().says("only its name in Robot could not be changed")
    installed = boots(lab, "unnamed-1")
    assert installed[-2:] == ["rescue", "disk"]
    lab.forget_faults()
    lab.run(*THERE).ok()
    assert boots(lab, "unnamed-1") == installed
    assert machine(lab, "unnamed-1")["name"] == "unnamed-1"


@pytest.mark.long
def test_no_machine_waits_for_one_whose_rescue_is_late(lab):
    lab.fault(point="boot", machine=str(NUMBERS["late-1"]), effect="ignore_rescue")
    inventory(lab, "late-1", "early-1", kubenode_give_back_after=30, kubenode_sw_reset_timeout=60)
    lab.run().ok()
    assert len(resets(lab, "late-1")) == 2
    assert len(resets(lab, "early-1")) == 1
    for name in ("late-1", "early-1"):
        assert lab.proof(name) == [name, "made by the bootstrap data"]


@pytest.mark.long
def test_letters_that_swapped_since_the_disks_were_looked_at(lab):
    name = "swapped-1"
    (wanted, _other) = machine(lab, name)["disks"]
    before = disks(lab, name)
    inventory(lab, name)
    with lab.playing("robot_inspect"):
        lab.run().ok()
    assert f"kubenode_root_device_hints: {{serial: {wanted['serial']}}}" in lab.output
    assert disks(lab, name) == before
    # The rescue that looked is not the one that writes.
    lab.testbed.ssh(name, "systemctl --no-block poweroff", "rescue")
    until(lambda: not machine(lab, name)["powered"], "a machine that is off")
    inventory(lab, name, kubenode_root_device_hints={"wwn": wanted["wwn"]}, kubenode_sw_reset_timeout=20)
    lab.run().ok()
    after = disks(lab, name)
    assert after[0] != before[0]
    assert after[1] == before[1]
    assert lab.proof(name) == [name, "made by the bootstrap data"]


@pytest.fixture
def verified(lab):
    """The inventory has first-1, whose system runs: another test installed it, or this fixture does."""
    inventory(lab, "first-1")
    if boots(lab, "first-1")[-2:] != ["rescue", "disk"]:
        lab.run().ok()


@pytest.mark.usefixtures("verified")
def test_wrong_credentials_are_tried_once(lab):
    lab.forget_requests()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lab.testbed.environment, "HROBOT_API_PASSWORD", "wrong-secret-4711")
        lab.run().fails().says("HROBOT_API_PASSWORD")
    assert "wrong-secret-4711" not in lab.output
    assert len(lab.asked("robot")) == 1
    lab.run(*THERE).ok()
