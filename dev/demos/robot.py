# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two dedicated servers on the lab: one by image command (UEFI), one by installimage (RAID 1, LVM), and then again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.demos import done, parser, say, show, twice
from dev.testbed import CHECKOUT, PROOF_FILE, DedicatedTestbed

BY_COMMAND, BY_INSTALLIMAGE = "written-1", "mirrored-1"
NUMBERS = {BY_COMMAND: 4711, BY_INSTALLIMAGE: 4712}
NVME = {"kind": "nvme", "size": "8G", "serial": "S64DNE0R400001", "wwn": "eui.0025385b71b00001"}
ARCHIVE = {"kind": "sata", "size": "16G", "serial": "ZL2A0001", "wwn": "0x5000c500a1b20001", "rotational": True}
MIRROR = [{"kind": "sata", "size": "8G", "serial": f"S455NY0M40000{n}", "wwn": f"0x5002538d40aa000{n}"} for n in (1, 2)]
SERVERS: list[dict[str, Any]] = [
    {"number": 4711, "product": "AX52", "memory_mib": 2048, "uefi": True, "disks": [NVME, ARCHIVE],
     "reset": ["power", "power_long", "hw", "man"]},
    {"number": 4712, "product": "EX44", "memory_mib": 2048, "uefi": False, "disks": MIRROR},
]  # fmt: skip
PLAYBOOK = """---
- import_playbook: kubenode.provision.robot_image_url
  vars:
    kubenode_hosts: by_image_command
- import_playbook: kubenode.provision.robot_installimage
  vars:
    kubenode_hosts: by_installimage
"""


def inventory(testbed: DedicatedTestbed) -> dict[str, Any]:
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


def look_inside(testbed: DedicatedTestbed) -> bool:
    """What the machines say of themselves."""
    looks = "hostname; cat /proc/sys/kernel/random/boot_id; lsblk -o NAME,TYPE,FSTYPE,SIZE,MOUNTPOINT"
    for name, more in ((BY_COMMAND, "ls -d /sys/firmware/efi"), (BY_INSTALLIMAGE, "cat /proc/mdstat")):
        say(f"proof from inside {name}: its own name, boot, disks, and the file that the bootstrap data made")
        show(testbed.ssh(name, f"{looks}; {more}; cat {PROOF_FILE}"))
    return True


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when both run from their own disks and the second run changed nothing."""
    chosen = parser("robot", __doc__).parse_args(arguments)
    say("starting the lab with two dedicated servers (the first time it builds its images from packages)")
    say("the machines are virtual ones: arrays and volumes need a kernel of their own; without KVM this takes minutes")
    options = ["--kind", "qemu", "--profile", chosen.profile]
    folder = CHECKOUT / "build" / "demo-robot"
    with DedicatedTestbed(folder, "demo-robot", SERVERS, lab_options=options, keep=chosen.keep) as testbed:
        playbook = Path(testbed.folder / "playbook.yml")
        playbook.write_text(PLAYBOOK, encoding="utf-8")
        testbed.playbook = str(playbook)
        testbed.write_groups(inventory(testbed))
        code = twice(testbed, lambda: look_inside(testbed))
    return done(testbed, code)
