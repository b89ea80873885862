# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""installimage by the playbook, on containers: everything but arrays, volumes and the boot loader's own start."""

import json
import re
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.nspawn

TARBALL = "Debian-1200-bookworm-amd64-base.tar.zst"
QUALIFIED = "tar-2.k8s.example.com"
PARTITIONS = [
    {"mount": "/boot", "filesystem": "ext4", "size": "512M"},
    {"mount": "/", "filesystem": "ext4", "size": "all"},
]
#: a machine → its variables that are wrong, and words of its findings
WRONG = {
    "raid-of-one": ({"kubenode_swraid": 1}, ["kubenode_swraid", "at least 2"]),
    "all-twice": (
        {"kubenode_partitions": [{**PARTITIONS[0], "size": "all"}, PARTITIONS[1]]},
        ["kubenode_partitions", "all"],
    ),
    "no-version": (
        {"kubenode_image": {"name": "node.tar.zst"}},
        ["kubenode_image.name", "node.tar.zst"],
    ),
    "no-digest": (
        {"kubenode_image": {"url": f"https://images.example.com/{TARBALL}"}},
        ["kubenode_image.url", "kubenode_image.digest is missing"],
    ),
    "tag-and-token": (
        {
            "kubenode_image": {"url": "oci://registry.example.com/node:v1", "name": TARBALL},
            "kubenode_registry_token": "user:a\nb",
            "kubenode_network_config": "dhcp",
        },
        [
            "kubenode_image.url",
            "it names no digest",
            "kubenode_registry_token holds a control character",
            "kubenode_network_config",
        ],
    ),
}
NAMES = ("tar-1", QUALIFIED, "renamed-1", "checked-1", "no-hints", *WRONG)
NUMBERS = {name: number for number, name in enumerate(NAMES, 201)}
DISKS = [{"kind": "sata", "size": "5G"}, {"kind": "sata", "size": "6G"}]
SERVERS = [{"number": number, "disks": DISKS, "memory_mib": 2048} for number in NUMBERS.values()]


@pytest.fixture(scope="module")
def lab(dedicated):
    return dedicated("nspawn", SERVERS)


def inventory(lab, *names, hosts=None, **variables):
    wanted = {
        "kubenode_root_device_hints": {"smallest": True},
        "kubenode_image": {"name": TARBALL},
        "kubenode_partitions": PARTITIONS,
        "kubenode_look_timeout": 4,
        "kubenode_first_contact": "reset",
        **variables,
    }
    group = {
        "hosts": {name: {"kubenode_server_number": NUMBERS[name], **(hosts or {}).get(name, {})} for name in names},
        "vars": {key: value for key, value in wanted.items() if value is not None},
    }
    lab.testbed.playbook = "kubenode.provision.robot_installimage"
    lab.testbed.write_groups({"machines": group})


def machine(lab, name):
    return lab.row("number", NUMBERS[name])


def on_another_port(lab) -> dict[str, object]:
    """Variables of a machine whose rescue listens on 22, as every rescue, and its system on 2222 alone."""
    data = yaml.safe_load(Path(lab.testbed.bootstrap_settings()["kubenode_bootstrap_data_file"]).read_text())
    data["write_files"].append({"path": "/etc/ssh/sshd_config.d/port.conf", "content": "Port 2222\n"})
    file = lab.testbed.folder / "user-data-port.yml"
    file.write_text("#cloud-config\n" + yaml.safe_dump(data))
    return {"ansible_port": 2222, "kubenode_bootstrap_data_file": str(file)}


def test_from_empty_disks_to_verified_systems_and_again(lab):
    """One of them has a qualified name (R4), and its system a port of its own (R5)."""
    inventory(lab, "tar-1", QUALIFIED, hosts={QUALIFIED: on_another_port(lab)})
    lab.run().ok()
    for name in ("tar-1", QUALIFIED):
        assert [boot["source"] for boot in machine(lab, name)["boots"]][-2:] == ["rescue", "disk"]
        assert len(machine(lab, name)["resets"]) == 1
        assert machine(lab, name)["name"] == name
        looks = "cat /etc/hostname; hostname -f; "
        looks += "cat /etc/kubenode-proof; grep -c ' /boot ext4 ' /etc/fstab; cat /etc/kubenode/installed.json"
        port = 2222 if name == QUALIFIED else 22
        short, whole, proof, boot, record = lab.testbed.ssh(name, looks, port=port).splitlines()
        assert (short, whole) == (name.partition(".")[0], name)
        assert (proof, boot) == ("made by the bootstrap data", "1")
        assert json.loads(record)["command"] == "installimage"
    lab.run("-e", '{"kubenode_look_timeout": 240}').ok().says("Nothing changed")
    assert [len(machine(lab, name)["resets"]) for name in ("tar-1", QUALIFIED)] == [1, 1]


def test_a_check_asks_a_rescue_that_answers_what_it_would_refuse(lab):
    inventory(lab, "checked-1")
    with lab.playing("robot_inspect"):
        lab.run().ok()
    fails = "the installation would fail: "
    for wrong, words in (
        ({"kubenode_image": {"name": TARBALL.replace("base", "none")}}, f"{fails}kubenode_image.name: there is no"),
        ({"kubenode_partitions": [{**PARTITIONS[1], "size": "9G"}]}, f"{fails}kubenode_partitions: they take 9216 MiB"),
    ):
        inventory(lab, "checked-1", **wrong)
        lab.run("--check").fails().says(words)
    inventory(lab, "checked-1", kubenode_partitions=None)
    lab.run("--check", "--diff").ok().says(f"would install /root/.oldroot/nfs/images/{TARBALL} on ", "+PART / ext4 all")
    assert "erase what they hold" not in lab.output
    assert "/boot/efi" not in lab.output, "the rescue says that it was not booted by UEFI"
    left = "ls -A /tmp /root/.kubenode; lsblk -no FSTYPE"
    assert "installimage" not in lab.testbed.ssh("checked-1", left, "rescue")
    assert len(machine(lab, "checked-1")["resets"]) == 1


def test_a_rescue_that_never_lets_us_in_is_waited_for_as_long_as_the_user_says(lab):
    """Its address is the one of another machine, which shows other host keys."""
    inventory(lab, "checked-1")
    with lab.playing("robot_inspect"):
        lab.run().ok()
    other = {"kubenode_address": machine(lab, "tar-1")["address"]}
    inventory(lab, "checked-1", hosts={"checked-1": other}, kubenode_rescue_timeout=14)
    seen = "an SSH server answers with a host key that is not the pinned one"
    for playbook in ("robot_installimage", "robot_inspect"):
        with lab.playing(playbook):
            lab.run().fails().says(f"the rescue did not answer within 14 s; at last: {seen}")
        said = " ".join(lab.output.split())
        assert re.search(f"checked-1: waiting for the rescue, 1[0-9] of at most 14 s: {seen}", said), playbook


@pytest.mark.long
def test_a_rescue_that_was_renamed_is_no_new_system(lab):
    """P5: installimage gives the rescue its machine's name; what fails after that leaves a rescue of that name."""
    again = {"kubenode_clear_quarantine": ["renamed-1"]}
    inventory(lab, "renamed-1", kubenode_post_install_script="#!/bin/sh\nexit 7\n", **again)
    for run in ("the first run", "what the first one left"):
        lab.run().fails()
        assert lab.testbed.ssh("renamed-1", "hostname", "rescue").strip() == "renamed-1", run
        assert machine(lab, "renamed-1")["name"] != "renamed-1", "it was given the name of a proven machine"
        (found,) = lab.report["machines"]
        assert (bool(found["verified"]), found["failed"]) == (False, True), run
        assert [boot["source"] for boot in machine(lab, "renamed-1")["boots"]][-1] == "rescue"
    inventory(lab, "renamed-1", **again)
    lab.run().ok()
    (found,) = lab.report["machines"]
    assert found["verified"]


def test_refused_before_a_server_is_touched(lab):
    before = [machine(lab, name) for name in WRONG]
    inventory(lab, *WRONG, hosts={name: variables for name, (variables, _words) in WRONG.items()})
    findings = lab.run().fails().findings(*WRONG)
    for name, (_variables, words) in WRONG.items():
        assert all(word in findings[name] for word in words), (name, findings[name], lab.output)
    assert "Traceback" not in lab.output
    assert [machine(lab, name) for name in WRONG] == before


def test_disks_that_nothing_names_are_refused_before_a_server_is_touched(lab):
    before = machine(lab, "no-hints")
    inventory(lab, "no-hints", kubenode_root_device_hints=None)
    lab.run().fails().says("kubenode_root_device_hints", "robot_inspect")
    assert "Traceback" not in lab.output
    assert machine(lab, "no-hints") == before
