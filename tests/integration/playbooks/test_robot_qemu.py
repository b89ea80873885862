# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""installimage with nothing left out: an array over two disks, volumes on it, a boot loader that finds them again.

``KUBENODE_LAB_INSTALLIMAGE`` names the folder of another installimage than the lab's. ``KUBENODE_TEST_ARCHIVES`` is a
folder in which archives are kept from run to run.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from dev.demos import machines
from lab.apt import apt_options, sources

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(12000)]

#: An emulated processor needs its time, above all for the initramfs of an archive; nothing is asserted about it.
PATIENCE = {"kubenode_boot_timeout": 4000, "kubenode_command_timeout": 9000, "kubenode_give_back_after": 0}
_LIMIT = 11000
LOOKS = (
    "hostname; cat /etc/kubenode-proof; findmnt -no SOURCE /; findmnt -no FSTYPE /var/lib/data; "
    "ls -d /sys/firmware/efi 2>/dev/null || echo legacy; cat /proc/mdstat"
)


def mirrored_system(lab, name: str, firmware: str, arrays: int) -> None:
    """Assert that a server runs from volumes on arrays of both of its disks, and started from them."""
    hostname, proof, root, data, found, *rest = lab.testbed.ssh(name, LOOKS).splitlines()
    assert (hostname, proof) == (name, "made by the bootstrap data")
    assert (root, data) == ("/dev/mapper/vg0-root", "xfs")
    assert found == firmware
    both = [line for line in rest if line.startswith("md") and "raid1" in line]
    assert len(both) == arrays
    assert all("sda" in line and "sdb" in line for line in both)
    (machine,) = lab.testbed.machines()
    assert [boot["source"] for boot in machine["boots"]][-2:] == ["rescue", "disk"]


def test_a_mirrored_server_boots_from_its_own_disks(dedicated):
    name = machines.BY_INSTALLIMAGE
    (server,) = [one for one in machines.DEDICATED if one["number"] == machines.NUMBERS[name]]
    lab = dedicated("qemu", [server])
    testbed = lab.testbed
    group = machines.dedicated_inventory(testbed)["by_installimage"]
    group["vars"] |= PATIENCE
    testbed.playbook = "kubenode.provision.robot_installimage"
    testbed.write_groups({"by_installimage": group})
    lab.run(limit=_LIMIT).ok()
    # Boot partition and physical volume, each on both disks.
    mirrored_system(lab, name, "legacy", 2)


def archive_of(tmp_path_factory, name: str, *packages: str) -> Path:
    """An archive of node_image_debian, as a user has it made on a controller."""
    kept = os.environ.get("KUBENODE_TEST_ARCHIVES")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("packages")
    options = {
        "path": str(folder / name),
        "suite": "bookworm",
        "include": packages,
        "mirrors": sources("bookworm"),
        "apt_options": [f"{line};" for line in apt_options()],
    }
    words = ["ansible", "localhost", "-m", "kubenode.provision.node_image_debian", "-a", json.dumps(options)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / name


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """One with the packages that every archive has."""
    return archive_of(tmp_path_factory, "Debian-1200-bookworm-amd64-packages.tar.zst")


@pytest.mark.parametrize("firmware", ["legacy", "/sys/firmware/efi"], ids=["legacy", "uefi"])
def test_an_archive_of_packages_boots_from_a_mirror_that_installimage_made(dedicated, archive, firmware):
    name, uefi = machines.BY_INSTALLIMAGE, firmware != "legacy"
    (server,) = [one for one in machines.DEDICATED if one["number"] == machines.NUMBERS[name]]
    # the whole archive lies in the rescue's memory
    lab = dedicated("qemu", [{**server, "uefi": uefi, "memory_mib": 3072}])
    testbed = lab.testbed
    group = machines.dedicated_inventory(testbed)["by_installimage"]
    esp = {"mount": "/boot/efi", "filesystem": "esp", "size": "256M"}
    group["vars"] |= PATIENCE | {
        "kubenode_image": {"file": str(archive)},
        # an emulated processor has better things to do than to compare two empty disks
        "kubenode_autosetup": {"RAID_ASSUME_CLEAN": True},
        "kubenode_partitions": [*([esp] if uefi else []), *group["vars"]["kubenode_partitions"]],
    }
    testbed.playbook = "kubenode.provision.robot_installimage"
    # The archive has no host keys: those that the installation makes are what the first contact is checked by.
    testbed.write_groups({"by_installimage": group}, known_host_key=False)
    lab.run(limit=_LIMIT).ok()
    mirrored_system(lab, name, firmware, 3 if uefi else 2)
    # Nothing in it reads /etc/network/interfaces: its own network would be one cable, where there is only the gateway.
    (route,) = testbed.ssh(name, "ip -4 route").splitlines()
    assert route.startswith("default via ")
    assert "proto dhcp" not in route
    files = testbed.ssh(name, "cat /run/systemd/netif/links/*; resolvectl dns").splitlines()
    assert "NETWORK_FILE=/etc/systemd/network/05-kubenode.network" in files


PASSPHRASE = "correct-horse"


def encrypted(lab, **variables: object) -> None:
    """Write the inventory of a server whose volumes are all on one encrypted partition of its array."""
    group = machines.dedicated_inventory(lab.testbed)["by_installimage"]
    boot, physical = group["vars"]["kubenode_partitions"]
    group["vars"] |= PATIENCE | {
        "kubenode_autosetup": {"RAID_ASSUME_CLEAN": True},
        "kubenode_partitions": [boot, {**physical, "crypt": True}],
        "kubenode_crypt_password": PASSPHRASE,
        **variables,
    }
    lab.testbed.playbook = "kubenode.provision.robot_installimage"
    lab.testbed.write_groups({"by_installimage": group}, known_host_key=False)


def test_an_encrypted_server_that_its_image_cannot_open_is_refused(dedicated):
    name = machines.BY_INSTALLIMAGE
    (server,) = [one for one in machines.DEDICATED if one["number"] == machines.NUMBERS[name]]
    lab = dedicated("qemu", [{**server, "memory_mib": 3072}])
    encrypted(lab)  # the lab's tarball has no cryptsetup
    lab.run("-vvv", limit=_LIMIT).fails().says("/etc/crypttab names encrypted devices; the image lacks cryptsetup")
    assert PASSPHRASE not in lab.output
    left = lab.testbed.ssh(name, "lsblk -nro NAME,TYPE,FSTYPE /dev/sda /dev/sdb; ls /autosetup* || true", "rescue")
    assert left.splitlines() == ["sda disk ", "sdb disk "]
    (machine,) = lab.testbed.machines()
    assert machine["boots"][-1]["source"] == "rescue"


def test_an_encrypted_server_is_unlocked_over_ssh(dedicated, tmp_path_factory):
    name, passphrase = machines.BY_INSTALLIMAGE, PASSPHRASE
    packages = ("cryptsetup-initramfs", "dropbear-initramfs")
    image = archive_of(tmp_path_factory, "Debian-1200-bookworm-amd64-unlock.tar.zst", *packages)
    (server,) = [one for one in machines.DEDICATED if one["number"] == machines.NUMBERS[name]]
    lab = dedicated("qemu", [{**server, "memory_mib": 3072}])
    testbed = lab.testbed
    encrypted(lab, kubenode_image={"file": str(image)}, kubenode_remote_unlock=True)
    lab.run("-vvv", limit=_LIMIT).ok()
    assert passphrase not in lab.output
    mirrored_system(lab, name, "legacy", 2)
    assert " crypt" in testbed.ssh(name, "lsblk -nso NAME,TYPE /dev/mapper/vg0-root")
    # the keys of both systems are known, and are not the same
    known = testbed.folder / "kubenode" / "known_hosts"
    kinds = [{line.split()[2] for line in (known / f"{name}.{system}").read_text().splitlines() if line[0] != "#"}
             for system in ("initramfs", "os")]  # fmt: skip
    assert kinds[0]
    assert not kinds[0] & kinds[1]
    hidden = f"! grep -rqs {passphrase} /etc /installimage.conf /installimage.debug /var/log /root && echo clean"
    assert testbed.ssh(name, hidden).strip() == "clean"
    testbed.playbook = "kubenode.provision.node_reboot"
    before = testbed.ssh(name, "cat /proc/sys/kernel/random/boot_id")
    lab.run("-vvv", limit=_LIMIT).ok()
    assert passphrase not in lab.output
    assert testbed.ssh(name, "cat /proc/sys/kernel/random/boot_id") != before
