# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""RAID with a volume group on it, in a machine whose kernel really has both."""

import pytest

from tests.integration.disks.conftest import by_serial, held

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(4800)]

DISKS = [
    {"size": "300M", "kind": "nvme", "serial": "ONE"},
    {"size": "300M", "kind": "sata", "serial": "TWO", "wwn": "0x5002538d40aa0002"},
    {"size": "40M", "kind": "sata", "serial": "WIN", "wwn": "0x5002538d40aa0003"},
]
#: RAID 1 over a partition of each disk, a volume group on it, a system on one of its volumes.
BUILD = r"""
set -e
for disk in /dev/nvme0n1 /dev/sda; do printf 'label: gpt\n,\n' | sfdisk --quiet --wipe always $disk; done
udevadm settle
mdadm --create /dev/md/old --run --level=1 --raid-devices=2 --assume-clean /dev/nvme0n1p1 /dev/sda1 2>/dev/null
udevadm settle
pvcreate -qq --yes /dev/md/old
vgcreate -qq vg-old /dev/md/old
lvcreate -qq --yes --name root --size 100M vg-old
lvcreate -qq --yes --name swap --size 40M vg-old
mkswap /dev/vg-old/swap >/dev/null
mkfs.ext4 -q -L oldroot /dev/vg-old/root
mkdir -p /mnt/old
mount /dev/vg-old/root /mnt/old
mkdir -p /mnt/old/usr/lib
echo 'PRETTY_NAME="Old Linux 7"' >/mnt/old/usr/lib/os-release
umount /mnt/old
mkfs.vfat /dev/sdb >/dev/null
mount /dev/sdb /mnt/old
mkdir -p /mnt/old/EFI/Microsoft
umount /mnt/old
sync
"""
STOP = "vgchange -qq --activate n vg-old && udevadm settle && mdadm --stop /dev/md/old 2>/dev/null && udevadm settle"
START = (
    "mdadm --assemble /dev/md/old /dev/nvme0n1p1 /dev/sda1 2>/dev/null && udevadm settle && "
    "vgchange -qq --activate y vg-old && mount /dev/vg-old/root /mnt/old && swapon /dev/vg-old/swap"
)


def test_raid_and_volumes_are_seen_guarded_and_emptied(virtual_server):
    machine = virtual_server(disks=DISKS)
    missing = machine.disks(root_device_hints={"serial": "MISSING"})
    assert missing["permanent"] is True
    assert float(machine.sh("cat /proc/uptime").split()[0]) > 60, "a disk may be late; it was not given up too soon"
    machine.sh(BUILD)
    machine.sh(STOP)
    before = machine.disk_marks()

    # An emulated NVMe disk has no EUI: its WWN is made of serial number and model.
    nvme, sata, _other = (disk["wwn"] for disk in machine.specs)
    hints = {"raid": {"wwn": [sata.upper().replace("0X", ""), nvme]}}
    seen = machine.disks(root_device_hints=hints).ok()
    assert seen["root_devices"] == ["sda", "nvme0n1"]
    for serial in ("ONE", "TWO"):
        disk = by_serial(seen)[serial]
        assert held(disk) == ["table", "raid", "lvm", "system", "swap"], disk["holds"]
        assert all(entry["disks"] == ["sda", "nvme0n1"] for entry in disk["holds"][1:])
        (system,) = (entry for entry in disk["holds"] if entry["kind"] == "system")
        assert system["system"] == "Old Linux 7"
    assert by_serial(seen)["WIN"]["holds"][0]["system"] == "Windows (its boot loader)"
    assert machine.sh("lsblk -no TYPE | sort -u") == "disk\npart\n", "what was started for the look is gone again"

    refused = machine.ready(root_device_hints={"serial": "TWO"}, wipe=["TWO"]).fails()
    assert f"name that one in kubenode_wipe too ({nvme!r})" in refused["msg"], "it names the disk that shares the RAID"
    assert machine.disk_marks() == before

    machine.sh(START)
    done = machine.ready(root_device_hints=hints, wipe=["ONE", "TWO"]).ok()
    assert {serial: held(disk) for serial, disk in by_serial(done).items()} == {
        "ONE": [],
        "TWO": [],
        "WIN": ["filesystem"],
    }
    assert machine.disk_marks()[2] == before[2]
    machine.sh("udevadm trigger --settle --action=add --subsystem-match=block")
    left = machine.sh("lsblk -no TYPE | sort -u; grep -c active /proc/mdstat; grep -c dev /proc/swaps; lvm vgs; true")
    assert left == "disk\n0\n0\n", "nothing comes back when the disks are scanned again"
