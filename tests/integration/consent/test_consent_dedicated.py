# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written on dedicated servers, and what is not written although an old permission is still set."""

import json

import pytest
import yaml

from tests.integration.consent.conftest import SEEN

pytestmark = pytest.mark.nspawn

DISK = {"kind": "nvme", "size": "3G", "serial": "CONSENT00000001"}
SERVERS = [{"number": number, "disks": [DISK], "memory_mib": 1024} for number in (301, 302, 303)]


def host(number, **variables):
    return {"kubenode_server_number": number, "kubenode_root_device_hints": {"smallest": True}, **variables}


def test_a_permission_in_the_inventory_does_not_empty_a_node_in_its_rescue(dedicated):
    """C4: kubenode_wipe is set in the inventory, and a colleague runs the playbook while the node is repaired."""
    node = host(301, kubenode_wipe=[DISK["serial"]])
    dedicated.servers({"wiped-1": node})
    dedicated.run().ok()
    assert dedicated.record("wiped-1")["consent"] == "wipe"
    dedicated.shell("wiped-1", "touch /etc/precious && sync")
    dedicated.dedicated_into_rescue("wiped-1", 301)
    boots = dedicated.boots("wiped-1")
    boot = dedicated.wait_for("wiped-1")

    for folder in ("kubenode", "colleague"):
        dedicated.servers({"wiped-1": node}, kubenode_dir=str(dedicated.testbed.folder / folder))
        dedicated.run(*SEEN).fails().says("not started for an open installation of ours")
    assert dedicated.boots("wiped-1") == boots
    dedicated.dedicated_reset("wiped-1", 301, boot)
    assert dedicated.shell("wiped-1", "ls /etc/precious") == "/etc/precious\n"

    # the word that names the machine counts alone, and what it installs uses up both
    named = ("-e", '{"kubenode_reinstall": ["wiped-1"]}')
    dedicated.run(*SEEN, *named).ok().says("Only kubenode_reinstall counts here")
    assert dedicated.record("wiped-1")["consent"] == "reinstall+wipe"
    seen = dedicated.boots("wiped-1")
    dedicated.run(*SEEN, *named).says("kubenode_reinstall names wiped-1, but this was used")
    assert dedicated.boots("wiped-1") == seen


def test_a_system_that_was_seen_ends_what_a_run_had_begun(dedicated):
    """C3: the operator repairs what cloud-init left; later SSH is silent for some time."""
    dedicated.servers({"seen-1": host(302)})
    (settings,) = [yaml.safe_load(dedicated.testbed.inventory.read_text())["all"]["vars"]]
    with open(settings["kubenode_bootstrap_data_file"], encoding="utf-8") as file:
        data = yaml.safe_load(file)
    broken = dedicated.testbed.folder / "broken.yml"
    broken.write_text("#cloud-config\n" + yaml.safe_dump({**data, "runcmd": [["sh", "-c", "exit 3"]]}))
    node = host(302, kubenode_bootstrap_data_file=str(broken))
    dedicated.servers({"seen-1": node})
    dedicated.run().fails()
    dedicated.shell("seen-1", "touch /etc/precious && sync")
    dedicated.run(*SEEN).fails()
    boot = dedicated.wait_for("seen-1")
    dedicated.shell("seen-1", "systemctl stop ssh.socket ssh.service || true", check=False)
    dedicated.run("-e", "kubenode_hw_reset_timeout=60").fails()
    dedicated.dedicated_reset("seen-1", 302, boot)
    if dedicated.shell("seen-1", "test -d /root/.oldroot && echo rescue", check=False):
        dedicated.dedicated_reset("seen-1", 302, dedicated.wait_for("seen-1"))
    assert dedicated.shell("seen-1", "ls /etc/precious") == "/etc/precious\n"


def test_an_image_that_cannot_be_fetched_empties_no_disk(dedicated):
    """C7's family: the word for the disk is given, and then the image URL answers 404."""
    wrong = dedicated.testbed.image_url().rpartition("/")[0] + "/none.raw.zst"
    dedicated.servers({"kept-1": host(303)}, kubenode_image_url=f"{wrong}?sig=not-for-logs")
    dedicated.run().fails()
    disk = dedicated.shell("kept-1", "lsblk -dnpro NAME,SERIAL | sed -n 's/ CONSENT00000001$//p'").strip()
    dedicated.shell("kept-1", f"mkfs.ext4 -q -F -L precious {disk} && sync")
    look = f"blockdev --flushbufs {disk}; head -c 64M {disk} | sha256sum"
    before = dedicated.shell("kept-1", look)

    words = {"kubenode_wipe": [DISK["serial"]], "kubenode_reinstall": ["kept-1"]}
    dedicated.run("-e", json.dumps(words)).fails()
    assert dedicated.shell("kept-1", look) == before
    reason = dedicated.machine("kept-1")["reason"]
    assert f"kubenode_image_url {wrong} cannot be fetched in this rescue: HTTP 404" in reason
    assert "No disk was touched" in reason
    assert "not-for-logs" not in dedicated.output + dedicated.testbed.report.read_text()
