# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is called verified on cloud machines, and what a second run makes of a first one that failed."""

import json

import pytest
import yaml

from tests.integration.testbeds import raw_disk
from tests.key_pairs import key_pair
from tests.waiting import until

pytestmark = pytest.mark.nspawn


def fail_twice(cloud, *names):
    """A run in which every machine fails, each in its own way, and a second one with nothing repaired."""
    testbed, text = cloud.testbed, "#cloud-config\n"
    testbed.write_inventory(["none"])
    (settings,) = [one["vars"] for one in yaml.safe_load(testbed.inventory.read_text()).values()]
    with open(settings["kubenode_bootstrap_data_file"], encoding="utf-8") as file:
        data = yaml.safe_load(file)
    broken = testbed.folder / "broken.yml"
    broken.write_text(text + yaml.safe_dump({**data, "runcmd": [["sh", "-c", "exit 3"]]}))
    wrong = testbed.folder / "wrong_key"
    wrong.unlink(missing_ok=True)
    key_pair(wrong)
    every = {
        # the command restarts the machine
        "reboots-1": {**cloud.command("reboots", "sleep 1; reboot -f; sleep 60\n"), "kubenode_command_timeout": 10},
        # the command writes nothing
        "nothing-1": {
            **cloud.command("nothing", "echo IMAGE_URL_DONE\n"),
            "kubenode_host_keys": [],
            "kubenode_boot_timeout": 20,
        },
        "missed-1": {"kubenode_host_keys": []},
        "seed-1": {"kubenode_bootstrap_data_file": str(broken)},
        "key-1": {"kubenode_host_keys": [wrong.with_suffix(".pub").read_text().strip()], "kubenode_boot_timeout": 30},
    }
    hosts = {name: every[name] for name in names}
    # the limit counts for the whole run, and is spent whole by the machine that never comes
    cloud.inventory(hosts, **({"kubenode_rescue_timeout": 90} if "missed-1" in hosts else {}))
    if "missed-1" in hosts:
        cloud.fault(point="boot", machine="missed-1", effect="ignore_rescue", times=2)
    cloud.run().fails()
    first = {name: cloud.machine(name) for name in hosts}
    # all but one, which has nothing to boot, have been up for long
    cloud.run("-e", "kubenode_rescue_timeout=20").fails()
    return cloud, first, {name: cloud.machine(name) for name in hosts}, hosts


@pytest.fixture(scope="module")
def seen(cloud):
    """Machines of which the second run sees what they are."""
    return fail_twice(cloud, "nothing-1", "key-1")


@pytest.fixture(scope="module")
def lost(cloud):
    """Machines that ended in the middle, missed their rescue, or have a system that reports a failure."""
    return fail_twice(cloud, "reboots-1", "missed-1", "seed-1")


@pytest.mark.parametrize("failed", ["seen", pytest.param("lost", marks=pytest.mark.long)])
def test_a_second_run_makes_no_success_of_a_failure(request, failed):
    """P1 and P3: what failed in the first run fails in the second one, with a reason."""
    cloud, first, second, hosts = request.getfixturevalue(failed)
    for name in hosts:
        assert first[name]["failed"], (name, cloud.output)
        assert second[name]["failed"], (name, cloud.output)


@pytest.mark.long
def test_a_placeholder_gets_no_record(lost):
    """P3: and nothing of it is called this installation."""
    cloud, _first, second, _hosts = lost
    assert cloud.shell("missed-1", "cat /etc/kubenode/installed.json", check=False) == ""
    assert not cloud.server("missed-1")["rescue_enabled"], "a run that gives up disarms the rescue"
    assert "kubenode_reinstall" in second["missed-1"]["reason"]


def test_a_second_run_finishes_the_proof_that_the_first_one_missed(seen):
    """P1: the machine was right, the operator's idea of its key was not."""
    cloud, _first, _second, hosts = seen
    boots = cloud.boots("key-1")
    cloud.inventory({"key-1": {}})
    cloud.run().ok()
    assert cloud.boots("key-1") == boots
    record = cloud.record("key-1")
    assert record["verified_at"]
    assert record["installation"] == cloud.server("key-1")["labels"]["kubenode.provision/installation"]
    cloud.inventory(hosts)


#: Leaves in the record what a command of a user's own writes, and fails after that.
FAILS_LATE = """
mount /dev/sda2 /mnt
printf '{"machine": "%s", "installation": "%s"}' "$3" "$KUBENODE_INSTALLATION" >/mnt/etc/kubenode/installed.json
umount /mnt
echo 'the image is damaged' >&2
exit 1
"""


@pytest.mark.long
def test_what_a_command_left_that_failed_is_never_verified(cloud):
    """Its system boots, and shows the id of its installation; no run says that it is whole, or what it was made of."""
    cloud.inventory({"late-1": cloud.command("fails-late", raw_disk(after=FAILS_LATE))})
    cloud.run().fails().says("the image is damaged")
    cloud.act("late-1", "reset")
    until(lambda: cloud.boots("late-1")[-1] == "disk", "a boot from disk", pause=0.5)
    left = cloud.record("late-1")
    assert set(left) == {"machine", "installation"}
    cloud.inventory({"late-1": {}})
    for where in ("kubenode", "colleague"):
        given = json.dumps({"kubenode_dir": str(cloud.testbed.folder / where)}) if where == "colleague" else "{}"
        cloud.run("-e", given).fails()
        assert "kubenode_adopt" in cloud.machine("late-1")["reason"], cloud.output
    assert cloud.record("late-1") == left


def test_a_proven_system_is_itself_after_a_power_cut(cloud):
    """What its first boot has configured is on its disk before it is called verified."""
    cloud.inventory({"cut-1": {}})
    cloud.run().ok()
    cloud.act("cut-1", "poweroff")
    cloud.act("cut-1", "poweron")
    cloud.wait_for("cut-1")
    cloud.run().ok()
    assert cloud.machine("cut-1")["verified"]
    assert cloud.boots("cut-1") == ["rescue", "disk", "disk"]
