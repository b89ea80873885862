# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""robot_release on dedicated servers that boot: exactly the named disks are emptied, and the rest is as it was."""

import json
import os
import re

import pytest

from tests.integration.accounts import disk_marks
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.long]

DISKS = [
    {"kind": "nvme", "size": "3G", "serial": "RELEASE0000001"},
    {"kind": "sata", "size": "4G", "serial": "RELEASE0000002"},
]
#: What the first release forgot.
ANY_KEY = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
NUMBERS = {"given-1": 401, "stays-1": 402}
SPECIAL = {"stays-1": {"image": "debian"}}
SERVERS = [
    {"number": number, "disks": DISKS, "memory_mib": 1024, **SPECIAL.get(name, {})} for name, number in NUMBERS.items()
]
ONE = '{"kubenode_release": ["given-1"], "kubenode_look_timeout": 60}'
WIPE = f'{{"kubenode_wipe": ["{DISKS[0]["serial"]}"]}}'


@pytest.fixture(scope="module")
def lab(dedicated):
    """Two servers, of which the first was installed by us, and its second disk holds data."""
    hosts = {name: {"kubenode_server_number": number} for name, number in NUMBERS.items()}
    dedicated.servers(hosts, kubenode_root_device_hints={"serial": DISKS[0]["serial"]})
    dedicated.run("--limit", "given-1", "-e", WIPE).ok()
    dedicated.testbed.playbook = "kubenode.provision.robot_release"
    return dedicated


def row(lab, name):
    return lab.row("number", NUMBERS[name])


def boots(lab):
    return {name: [boot["source"] for boot in row(lab, name)["boots"]] for name in NUMBERS}


def marks(lab):
    os.sync()  # what a system that runs has written a while ago is on its disk, and does not come there later
    return {name: disk_marks(lab, number) for name, number in NUMBERS.items()}


def test_release_without_and_with_disks_to_empty(lab):
    """One test, since installing a server takes a minute: refusals, then a release without and one with wiping."""
    kept, seen, disks = lab.testbed.folder / "kubenode", boots(lab), marks(lab)
    record = json.loads(lab.testbed.ssh("given-1", "cat /etc/kubenode/installed.json"))

    lab.run().fails().says("kubenode_release names no machine")
    lab.run("-e", ONE, "-e", '{"kubenode_wipe": ["sda"]}').fails().says("'sda' names no disk")
    lab.run("-e", WIPE, "-e", '{"kubenode_release": {"given-1": "00000000"}}').fails().says(
        f"installation 00000000, but installation {record['installation'][:8]} is there"
    )
    lab.run("-e", ONE, "-e", WIPE, "--check").ok()
    assert (kept / "known_hosts/given-1.os").exists()
    assert boots(lab) == seen

    lab.run("-e", ONE).ok().says(
        "left alone, since kubenode_release does not name them: stays-1", "forgotten here: known_hosts/given-1."
    )
    assert not list(kept.glob("*/given-1.*"))
    assert (boots(lab), row(lab, "given-1")["powered"]) == (seen, True)

    # a wrong address leads to another machine, whose host key is unknown by now
    wrong = {"kubenode_release": ["stays-1"], "kubenode_address": row(lab, "given-1")["address"]}
    lab.run("-e", json.dumps({**wrong, "ansible_ssh_common_args": ANY_KEY})).fails().says(
        "the machine that answers is another one: it has"
    )
    assert (boots(lab), row(lab, "stays-1")["powered"]) == (seen, True)

    exact = {"kubenode_release": {"given-1": record["installation"][:8]}, "ansible_ssh_common_args": ANY_KEY}
    # what is there was installed by this very word, which says nothing of what comes later
    lab.run("-e", WIPE, "-e", json.dumps(exact)).fails().says("kubenode_wipe names RELEASE0000001, but this was used")
    refused = marks(lab)
    word = {"kubenode_wipe": {DISKS[0]["serial"]: record["installation"][:8]}}
    lab.run("-e", json.dumps(word), "-e", json.dumps(exact)).ok()
    # the disk still held the system until now
    assert re.search(r"\bemptied \S", lab.output)
    assert boots(lab) == {**seen, "given-1": [*seen["given-1"], "rescue"]}
    until(lambda: not row(lab, "given-1")["powered"], "the power to be off")
    after = marks(lab)
    assert after["stays-1"] == disks["stays-1"]
    assert after["given-1"][1] == disks["given-1"][1]
    assert after["given-1"][0] != refused["given-1"][0]
    assert not list(kept.glob("*/given-1.*"))
    more = {"kubenode_ignore_unreachable": True, "ansible_timeout": 5}
    lab.run("-e", WIPE, "-e", ONE, "-e", json.dumps(more)).ok().says("the disks are empty")
    until(lambda: not row(lab, "given-1")["powered"], "the power to be off again")
