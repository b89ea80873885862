# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines on the lab, from nothing to a verified new system: in the cloud, a fleet of which some fail, dedicated."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from dev.demos import done, parser, say, show, twice
from dev.testbed import CHECKOUT, PROOF_FILE, DedicatedTestbed, Testbed


def cloud(arguments: Sequence[str]) -> int:
    """The main job on the lab, as an operator would run it: from nothing to a verified new system, and then again.

    Exit code 0 when the machines run their new system and the second run changed nothing.
    """
    options = parser("cloud", cloud.__doc__)
    options.add_argument("--kind", default="auto", choices=("auto", "nspawn", "qemu"), help="kind of lab machine")
    options.add_argument("--machines", type=int, default=1, help="how many machines")
    chosen = options.parse_args(arguments)
    names = [f"demo-{number}" for number in range(1, chosen.machines + 1)]
    say("starting the lab (the first time it builds a rescue system and a Debian image from packages)")
    lab = ["--kind", chosen.kind, "--profile", chosen.profile]
    testbed = Testbed(CHECKOUT / "build" / "demo", "demo", lab_options=lab, keep=chosen.keep)
    with testbed:
        say(f"the lab's machines are of the kind {testbed.lab['kind']}: {testbed.lab['reason']}")
        if testbed.lab["kind"] == "dry":
            say("machines of this kind do not boot, so there is nothing to show; run it as root: sudo make demo")
            return 1
        testbed.write_inventory(names)

        def proof() -> bool:
            for name in names:
                say(f"proof from inside {name}: hostname, boot id, the file that the bootstrap data made")
                show(testbed.ssh(name, f"hostname; cat /proc/sys/kernel/random/boot_id {PROOF_FILE}"))
            return True

        code = twice(testbed, proof)
    return done(testbed, code)


#: What goes wrong with whom: a wrong digest, a rescue that the machine does not boot, bootstrap data with an error.
BAD_IMAGE, NO_RESCUE, BAD_DATA = "fleet-4", "fleet-7", "fleet-10"


def fleet(arguments: Sequence[str]) -> int:
    """A fleet on the lab of which three machines fail, each in its own way, and the page that explains the run.

    Exit code 1, as the playbook's own, when just the three machines failed; 2 for anything else.
    """
    options = parser("fleet", fleet.__doc__)
    options.add_argument("--machines", type=int, default=12, help="how many machines, at least 10")
    chosen = options.parse_args(arguments)
    names = [f"fleet-{number}" for number in range(1, max(10, chosen.machines) + 1)]
    lab = ["--kind", "nspawn", "--profile", chosen.profile]
    testbed = Testbed(CHECKOUT / "build" / "demo-fleet", "demo-fleet", lab_options=lab, keep=chosen.keep)
    with testbed:
        _write_fleet(testbed, names)
        testbed.control(
            "POST", "/faults", {"point": "boot", "machine": NO_RESCUE, "effect": "ignore_rescue", "times": 2}
        )
        say(f"{len(names)} machines; {BAD_IMAGE} has a wrong digest, {NO_RESCUE} does not boot its rescue,")
        say(f"and the bootstrap data of {BAD_DATA} ends with an error")
        testbed.provision(say=say)
    if not testbed.report.exists():
        say("the playbook ended before it did anything")
        return 2
    report = json.loads(testbed.report.read_text(encoding="utf-8"))
    failed = {machine["name"] for machine in report["machines"] if machine["failed"]}
    verified = {machine["name"] for machine in report["machines"] if machine["verified"]}
    say(f"the page of this run: {testbed.report.with_suffix('.html')}")
    if failed != {BAD_IMAGE, NO_RESCUE, BAD_DATA} or verified != set(names) - failed:
        say(f"this is not what was expected: failed {sorted(failed)}, verified {sorted(verified)}")
        return 2
    return 1


def _write_fleet(testbed: Testbed, names: list[str]) -> None:
    """An ordinary inventory, with one wrong digest and one wrong user data."""
    testbed.write_inventory(names, kubenode_rescue_timeout=90)
    inventory = yaml.safe_load(testbed.inventory.read_text(encoding="utf-8"))
    hosts, variables = inventory["machines"]["hosts"], inventory["machines"]["vars"]
    wrong = variables["kubenode_image_url"].partition("#")[0] + "#sha256=" + "0" * 64
    hosts[BAD_IMAGE] = {"kubenode_image_url": wrong}
    data = yaml.safe_load(Path(variables["kubenode_bootstrap_data_file"]).read_text(encoding="utf-8"))
    bad = testbed.folder / "bad-user-data.yml"
    bad.touch(mode=0o600)
    bad.write_text("#cloud-config\n" + yaml.safe_dump({**data, "runcmd": [["false"]]}), encoding="utf-8")
    hosts[BAD_DATA] = {"kubenode_bootstrap_data_file": str(bad)}
    testbed.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")


BY_COMMAND, BY_INSTALLIMAGE = "written-1", "mirrored-1"
NUMBERS = {BY_COMMAND: 4711, BY_INSTALLIMAGE: 4712}
NVME = {"kind": "nvme", "size": "8G", "serial": "S64DNE0R400001", "wwn": "eui.0025385b71b00001"}
ARCHIVE = {"kind": "sata", "size": "16G", "serial": "ZL2A0001", "wwn": "0x5000c500a1b20001", "rotational": True}
MIRROR = [{"kind": "sata", "size": "8G", "serial": f"S455NY0M40000{n}", "wwn": f"0x5002538d40aa000{n}"} for n in (1, 2)]
DEDICATED: list[dict[str, Any]] = [
    {"number": 4711, "product": "AX52", "memory_mib": 2048, "uefi": True, "disks": [NVME, ARCHIVE],
     "reset": ["power", "power_long", "hw", "man"]},
    {"number": 4712, "product": "EX44", "memory_mib": 2048, "uefi": False, "disks": MIRROR},
]  # fmt: skip
_BOTH_PLAYBOOKS = """---
- import_playbook: kubenode.provision.robot_image_url
  vars:
    kubenode_hosts: by_image_command
- import_playbook: kubenode.provision.robot_installimage
  vars:
    kubenode_hosts: by_installimage
"""


def dedicated_inventory(testbed: DedicatedTestbed) -> dict[str, Any]:
    """What an operator writes: which disks, which image, which layout."""
    return {
        "by_image_command": {
            "hosts": {BY_COMMAND: {"kubenode_server_number": NUMBERS[BY_COMMAND]}},
            "vars": {
                "kubenode_root_device_hints": {"serial": NVME["serial"]},
                "kubenode_device_strings": "by-id",
                "kubenode_first_contact": "reset",
                "kubenode_image_url": testbed.image_url(),
                "kubenode_image_url_command": "image-url-command-raw-disk",
            },
        },
        "by_installimage": {
            "hosts": {BY_INSTALLIMAGE: {"kubenode_server_number": NUMBERS[BY_INSTALLIMAGE]}},
            "vars": {
                "kubenode_root_device_hints": {"raid": {"wwn": [disk["wwn"] for disk in MIRROR]}},
                "kubenode_first_contact": "reset",
                "kubenode_image": {"name": "Debian-1200-bookworm-amd64-base.tar.zst"},
                "kubenode_swraid": 1,
                "kubenode_swraid_level": 1,
                "kubenode_partitions": [
                    {"mount": "/boot", "filesystem": "ext4", "size": "1G"},
                    {"mount": "lvm", "filesystem": "vg0", "size": "all"},
                ],
                "kubenode_logical_volumes": [
                    {"vg": "vg0", "name": "root", "mount": "/", "filesystem": "ext4", "size": "4G"},
                    {"vg": "vg0", "name": "data", "mount": "/var/lib/data", "filesystem": "xfs", "size": "1G"},
                ],
            },
        },
    }


def _look_inside(testbed: DedicatedTestbed) -> bool:
    """What the machines say of themselves."""
    looks = "hostname; cat /proc/sys/kernel/random/boot_id; lsblk -o NAME,TYPE,FSTYPE,SIZE,MOUNTPOINT"
    for name, more in ((BY_COMMAND, "ls -d /sys/firmware/efi"), (BY_INSTALLIMAGE, "cat /proc/mdstat")):
        say(f"proof from inside {name}: its own name, boot, disks, and the file that the bootstrap data made")
        show(testbed.ssh(name, f"{looks}; {more}; cat {PROOF_FILE}"))
    return True


def robot(arguments: Sequence[str]) -> int:
    """Two dedicated servers on the lab: one by image command (UEFI), one by installimage (RAID 1, LVM), and then again.

    Exit code 0 when both run from their own disks and the second run changed nothing.
    """
    chosen = parser("robot", robot.__doc__).parse_args(arguments)
    say("starting the lab with two dedicated servers (the first time it builds its images from packages)")
    say("the machines are virtual ones: arrays and volumes need a kernel of their own; without KVM this takes minutes")
    options = ["--kind", "qemu", "--profile", chosen.profile]
    folder = CHECKOUT / "build" / "demo-robot"
    with DedicatedTestbed(folder, "demo-robot", DEDICATED, lab_options=options, keep=chosen.keep) as testbed:
        playbook = Path(testbed.folder / "playbook.yml")
        playbook.write_text(_BOTH_PLAYBOOKS, encoding="utf-8")
        testbed.playbook = str(playbook)
        testbed.write_groups(dedicated_inventory(testbed))
        code = twice(testbed, lambda: _look_inside(testbed))
    return done(testbed, code)
