# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What disks say about themselves in each kind of machine: names, links, sysfs, QEMU's command line."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import LabError
from lab.machines import guest_view, qemu
from lab.machines.base import DiskSpec, Hardware, Rescue, rescue_credentials, write_credentials
from lab.machines.disks import identities, kernel_names, partition_name
from lab.machines.guest_view import TreeWriter, fill_tree

_SIZE = 8 << 30
_HARDWARE = Hardware(4711, "db-1", 2, 2048, (DiskSpec(_SIZE),), "96:00:00:10:00:01", "198.18.16.2")
_KINDS = st.sampled_from(["scsi", "sata", "nvme"])


def _with(*disks: DiskSpec, **more: object) -> Hardware:
    return dataclasses.replace(_HARDWARE, disks=disks, **more)  # type: ignore[arg-type]


@given(st.lists(_KINDS, min_size=1, max_size=8), st.integers(1, 2**31))
def test_every_disk_has_its_own_serial_wwn_and_name(kinds: list[str], machine: int) -> None:
    disks = identities(_with(*(DiskSpec(_SIZE, kind) for kind in kinds), machine_id=machine))  # type: ignore[arg-type]
    assert len({disk.serial for disk in disks}) == len(disks)
    assert len({disk.wwn for disk in disks if disk.wwn}) == sum(kind != "scsi" for kind in kinds)
    known = [link for disk in disks for link in guest_view.disk_links(guest_view.disk_properties(disk), {})]
    assert len(known) == len(set(known))
    plain, swapped = kernel_names(disks, swapped=False), kernel_names(disks, swapped=True)
    assert sorted(plain) == sorted(swapped)
    assert len(set(plain)) == len(disks)
    nvme = [name for name, kind in zip(plain, kinds, strict=True) if kind == "nvme"]
    assert nvme == [f"nvme{place}n1" for place in range(len(nvme))]
    assert nvme[::-1] == [name for name, kind in zip(swapped, kinds, strict=True) if kind == "nvme"]


def test_partition_names() -> None:
    assert (partition_name("sda", 2), partition_name("nvme0n1", 2)) == ("sda2", "nvme0n1p2")


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (DiskSpec(0), "disk 0: size 0 is not a positive multiple of 512"),
        (DiskSpec(1000), "size 1000 is not"),
        (DiskSpec(_SIZE, "sata", wwn="eui.0025385b71b00001"), "does not fit kind sata"),
        (DiskSpec(_SIZE, "nvme", wwn="0x5002538d40aa0001"), "does not fit kind nvme"),
        (DiskSpec(_SIZE, "nvme", serial="S" * 21), "serial .* is not of 1..20"),
        (DiskSpec(_SIZE, "sata", model="a,b"), "model 'a,b' is not"),
        (DiskSpec(_SIZE, "ide"), "kind 'ide' is not one of scsi, sata, nvme"),  # type: ignore[arg-type]
    ],
)
def test_impossible_disks_are_refused(disk: DiskSpec, words: str) -> None:
    with pytest.raises(LabError, match=f"machine db-1: .*{words}"):
        identities(_with(disk))


def test_machine_without_disks_is_refused() -> None:
    with pytest.raises(LabError, match="db-1 has no disk"):
        identities(_with())


def test_links_are_those_of_udev() -> None:
    disks = identities(
        _with(
            DiskSpec(_SIZE, "nvme", "S1", "eui.0025385B71B00001", "SAMSUNG SSD 980"),
            DiskSpec(_SIZE, "sata", "ZC1", "0x5000c500a0000001", "ST4000NM0245"),
            DiskSpec(_SIZE, "scsi", "42"),
            DiskSpec(_SIZE, "scsi", "43", "0x5002538d40aa0001"),
        )
    )
    links = [
        sorted(
            link.removeprefix("disk/by-id/")
            for link in guest_view.disk_links(guest_view.disk_properties(disk), {})
            if "id" in link
        )
        for disk in disks
    ]
    assert links == [
        ["nvme-SAMSUNG_SSD_980_S1", "nvme-SAMSUNG_SSD_980_S1_1", "nvme-eui.0025385b71b00001"],
        ["ata-ST4000NM0245_ZC1", "wwn-0x5000c500a0000001"],
        ["scsi-0QEMU_QEMU_HARDDISK_42"],
        ["scsi-35002538d40aa0001", "wwn-0x5002538d40aa0001"],
    ]
    content = {
        "ID_FS_USAGE": "filesystem",
        "ID_FS_UUID_ENC": "12ab",
        "ID_PART_ENTRY_NAME": "a/b",
        "ID_FS_LABEL_ENC": "",
    }
    part = guest_view.disk_links(guest_view.disk_properties(disks[1]), content, part=2)
    assert set(part) == {
        "disk/by-id/ata-ST4000NM0245_ZC1-part2",
        "disk/by-id/wwn-0x5000c500a0000001-part2",
        "disk/by-path/pci-0000:00:1f.2-ata-1-part2",
        "disk/by-path/pci-0000:00:1f.2-ata-1.0-part2",
        "disk/by-uuid/12ab",
    }
    assert guest_view.udev_record({"B": "2", "A": "1"}, ["disk/y", "disk/x"]).splitlines() == [
        "S:disk/x", "S:disk/y", "I:1", "E:A=1", "E:B=2", "V:1",
    ]  # fmt: skip


def test_sysfs_of_a_disk_and_its_partition(tmp_path: Path) -> None:
    (disk,) = identities(_with(DiskSpec(_SIZE, "sata", rotational=True)))
    host = {"dev": "7:3", "size": "16777216", "uevent": "DEVNAME=loop3", "queue/rotational": "0", "diskseq": "9"}
    fill_tree(tmp_path / "sda", guest_view.disk_tree(disk, "sda", host))
    assert (tmp_path / "sda/uevent").read_text() == "MAJOR=7\nMINOR=3\nDEVNAME=sda\nDEVTYPE=disk\nDISKSEQ=9\n"
    assert (tmp_path / "sda/queue/rotational").read_text() == "1\n"
    assert (tmp_path / "sda/device/vendor").read_text() == "ATA     \n"
    tree = guest_view.partition_tree("nvme0n1", 2, {"dev": "259:5", "start": "2048", "size": "8", "partition": "2"})
    assert tree["uevent"] == "MAJOR=259\nMINOR=5\nDEVNAME=nvme0n1p2\nDEVTYPE=partition\nPARTN=2"


def test_writer_replaces_and_removes(tmp_path: Path) -> None:
    writer = TreeWriter(tmp_path / "spare")
    writer.folder(tmp_path / "seen/a", {"x/y": "1", "link": guest_view.Link("x"), "empty": None})
    assert (tmp_path / "seen/a/link/y").read_text() == "1\n"
    writer.file(tmp_path / "seen/a/x/y", "2")
    writer.file(tmp_path / "seen/a/link", guest_view.Link("empty"))
    assert (tmp_path / "seen/a/x/y").read_text() == "2\n"
    assert list((tmp_path / "seen/a/link").iterdir()) == []
    for name in ("a/link", "a", "never"):
        writer.remove(tmp_path / "seen" / name)
    assert list((tmp_path / "seen").iterdir()) == []
    assert list((tmp_path / "spare").iterdir()) == []


def _command(hardware: Hardware, swapped: bool = False, rescue: qemu.RescueFiles | None = None) -> str:
    disks = tuple((disk, Path(f"/d/{index}.raw")) for index, disk in enumerate(identities(hardware)))
    variables = Path("/m/vars.fd") if hardware.uefi else None
    parts = qemu.Parts("tcg", Path("/m/console"), Path("/m/qmp"), "m4711", disks, variables)
    return " ".join(qemu.command(hardware, parts, swapped, rescue))


def test_qemu_disks_swap_places_but_keep_files_serials_and_boot_order() -> None:
    hardware = _with(*(DiskSpec(_SIZE, kind, f"{kind}{n}") for kind in ("sata", "nvme") for n in (1, 2)))  # type: ignore[arg-type]
    for swapped, first, second in ((False, 0, 1), (True, 1, 0)):
        line = _command(hardware, swapped)
        assert f"ide-hd,bus=ide.{first},drive=disk0,bootindex=1,serial=sata1," in line
        assert f"ide-hd,bus=ide.{second},drive=disk1,bootindex=2,serial=sata2," in line
        assert f"nvme,id=nvme0,serial=nvme1,addr={0x10 + first:#x}" in line
        assert "nvme-ns,bus=nvme1,drive=disk3,bootindex=4" in line
        assert "if=none,id=disk2,file=/d/2.raw" in line


def test_qemu_tries_disks_in_the_boot_order() -> None:
    hardware = _with(*(DiskSpec(_SIZE, kind) for kind in ("sata", "nvme", "sata")))  # type: ignore[arg-type]
    disks = tuple((disk, Path(f"/d/{index}.raw")) for index, disk in enumerate(identities(hardware)))
    for order, places in (((), (1, 2, 3)), ((2,), (2, 3, 1)), ((1, 2, 0), (3, 1, 2))):
        parts = qemu.Parts("tcg", Path("/m/console"), Path("/m/qmp"), "m4711", disks, None, order)
        line = " ".join(qemu.command(hardware, parts, False, None))
        assert [f"drive=disk{disk},bootindex={place}" in line for disk, place in enumerate(places)] == [True] * 3


def test_qemu_command_escapes_names_and_keeps_secrets_out() -> None:
    hardware = _with(DiskSpec(_SIZE), name="a,b", product="x,y", manufacturer="ASUSTeK", uefi=True)
    files = qemu.RescueFiles(Path("/k"), Path("/i"), {"lab.root_password": Path("/c/p")}, Path("/share"))
    line = _command(hardware, rescue=files)
    assert "-name a,,b " in line
    assert line.count("manufacturer=ASUSTeK,product=x,,y,serial=4711") == 2  # system and board
    assert "if=pflash,unit=1,format=raw,file=/m/vars.fd" in line
    assert "-fw_cfg name=opt/io.systemd.credentials/lab.root_password,file=/c/p" in line
    assert "mount_tag=nfs.lab:/nfs" in line
    assert "pflash" not in _command(_HARDWARE)
    assert "-kernel" not in _command(_HARDWARE)


def test_credentials_of_a_rescue(tmp_path: Path) -> None:
    given = rescue_credentials(Rescue(("ssh-ed25519 AAAA x ",), "secret", (("rsa", "a key\n"), ("ecdsa", "another\n"))))
    assert given == {
        "ssh.authorized_keys.root": "ssh-ed25519 AAAA x\n",
        "lab.root_password": "secret",
        "lab.ssh_host_key.rsa": "a key\n",
        "lab.ssh_host_key.ecdsa": "another\n",
    }
    assert rescue_credentials(Rescue()) == {}
    for _boot in range(2):
        files = write_credentials(tmp_path / "given", given)
        assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    assert (tmp_path / "given").stat().st_mode & 0o777 == 0o700
    write_credentials(tmp_path / "given", {})
    assert list((tmp_path / "given").iterdir()) == []
