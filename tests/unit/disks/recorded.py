# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tools print on machines of several kinds, as they print it."""

from __future__ import annotations

import json
import zlib

from hypothesis import HealthCheck, settings

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts

MIB = 1 << 20
GIB = 1 << 30
FREE = (2, "")
#: On a loaded machine the clock says nothing about the code.
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ARRAY = "53214e5f-7a3c-48d1-94f7-0d6e1b0aa9f1"


def block(name: str, size: int, kind: str = "disk", inner: tuple = (), **more: object) -> dict:
    """One device of ``lsblk --json``."""
    fields = {
        "name": name,
        "kname": more.pop("kname", name),
        "path": more.pop("path", f"/dev/{name}"),
        "maj:min": more.pop("number", f"259:{zlib.crc32(name.encode()) % (1 << 20)}"),
        "size": size,
        "type": kind,
        **dict.fromkeys(("ro", "rm", "rota"), False),
        **dict.fromkeys(("tran", "wwn", "serial", "model", "fstype", "label", "uuid", "parttype", "pkname")),
        **more,
    }
    return {**fields, **({"children": list(inner)} if inner else {})}


def nvme(index: int, inner: tuple = (), **more: object) -> dict:
    """An NVMe disk of 512 GB."""
    about = {
        "tran": "nvme",
        "wwn": f"eui.0025385b71b0000{index + 1}",
        "serial": f"S4GENX0N10000{index + 1}",
        "model": "SAMSUNG MZVLB512HBJQ-00000",
    }
    return block(f"nvme{index}n1", 512110190592, inner=inner, **{**about, **more})


def sata(letter: str, inner: tuple = (), **more: object) -> dict:
    """A turning SATA disk of 4 TB."""
    about = {
        "tran": "sata",
        "rota": True,
        "wwn": f"0x50014ee2b1a0000{ord(letter) - 96}",
        "serial": f"WD-WCC4E00000{letter.upper()}",
        "model": "WDC WD4000FYYZ-01UL1B1",
    }
    return block(f"sd{letter}", 4000787030016, inner=inner, **{**about, **more})


def lsblk(*blocks: dict) -> str:
    """What ``lsblk --json`` prints of these disks."""
    return json.dumps({"blockdevices": list(blocks)})


def gpt(uuid: str = "11111111-2222-4333-8444-555555555555") -> tuple[int, str]:
    """``blkid -p -o export`` of a disk with a GPT."""
    return (0, f"DEVNAME=/dev/x\nPTUUID={uuid}\nPTTYPE=gpt\n")


def content(kind: str, usage: str, uuid: str = "", label: str = "", role: str = "", **more: str) -> tuple[int, str]:
    """``blkid -p -o export`` of a device with one content."""
    lines = ["DEVNAME=/dev/x"]
    lines += [f"LABEL={label}"] if label else []
    lines += [f"UUID={uuid}"] if uuid else []
    lines += [f"{key}={value}" for key, value in more.items()]
    lines += [f"TYPE={kind}", f"USAGE={usage}", "PART_ENTRY_SCHEME=gpt"]
    lines += [f"PART_ENTRY_TYPE={role}"] if role else []
    return (0, "\n".join(lines) + "\n")


def smart(passed: bool | None, code: int = 0) -> tuple[int, str]:
    """``smartctl --health --json``."""
    found: dict = {"json_format_version": [1, 0], "smartctl": {"version": [7, 3], "exit_status": code}}
    if passed is not None:
        found["smart_status"] = {"passed": passed}
    return (code, json.dumps(found))


def report(kind: str, *rows: dict) -> str:
    """A report of LVM."""
    return json.dumps({"report": [{kind: list(rows)}]})


def raid1_with_lvm(**more: object) -> disk_facts.Raw:
    """Two NVMe disks: RAID 1 for /boot, RAID 1 with a volume group that holds a system; one blank SATA disk."""
    volumes = (
        block("vg0-root", 40 * GIB, "lvm", kname="dm-0", path="/dev/mapper/vg0-root", number="252:0"),
        block("vg0-swap", 8 * GIB, "lvm", kname="dm-1", path="/dev/mapper/vg0-swap", number="252:1"),
    )
    boot = block("md0", GIB, "raid1", number="9:0")
    main = block("md1", 470 * GIB, "raid1", inner=volumes, number="9:1")
    disks = [
        nvme(
            index,
            (block(f"nvme{index}n1p1", GIB, "part", (boot,)), block(f"nvme{index}n1p2", 470 * GIB, "part", (main,))),
        )
        for index in (0, 1)
    ]
    members = {f"nvme{index}n1p{part}": ("aaaa", "bbbb")[part - 1] for index in (0, 1) for part in (1, 2)}
    export = "MD_LEVEL=raid1\nMD_DEVICES=2\nMD_NAME=rescue:{}\nMD_UUID=x:{}\nMD_METADATA=1.2\n"
    given = {
        "blkid": {
            "nvme0n1": gpt(),
            "nvme1n1": gpt("99999999-2222-4333-8444-555555555555"),
            **{
                name: content("linux_raid_member", "raid", uuid, f"rescue\\:{name[-1]}", UUID_SUB=name)
                for name, uuid in members.items()
            },
            "md0": content("ext3", "filesystem", "b00b", "boot"),
            "md1": content("LVM2_member", "raid", "Zc2d1X-pv"),
            "dm-0": content("ext4", "filesystem", "d00d", "root"),
            "dm-1": content("swap", "other", "5a5a"),
            "sda": FREE,
        },
        "edges": {"sda": False},
        "md": {name: export.format(name[-1], uuid) for name, uuid in members.items()},
        "pvs": report("pv", {"pv_name": "/dev/md1", "vg_name": "vg0", "vg_uuid": "Qq1"}),
        "lvs": report("lv", {"vg_name": "vg0", "lv_name": "root"}, {"vg_name": "vg0", "lv_name": "swap"}),
        "smart": {"nvme0n1": smart(True), "nvme1n1": smart(True), "sda": smart(True, 64)},
        "systems": {"dm-0": {"system": "Debian GNU/Linux 12 (bookworm)", "record": '{"machine": "node-1"}'}},
        **more,
    }
    return disk_facts.Raw(lsblk(*disks, sata("a")), **given)


def windows() -> disk_facts.Raw:
    """A SATA disk with a GPT, an EFI system partition, a reserved one and NTFS; a USB stick beside it."""
    parts = (block("sda1", 100 * MIB, "part"), block("sda2", 16 * MIB, "part"), block("sda3", 400 * GIB, "part"))
    return disk_facts.Raw(
        lsblk(sata("a", parts), block("sdb", 32 * GIB, tran="usb", rm=True, model="Virtual Floppy0")),
        blkid={
            "sda": gpt(),
            "sda1": content("vfat", "filesystem", "AB12-CD34", "SYSTEM", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),
            "sda2": (
                2,
                "DEVNAME=/dev/sda2\nPART_ENTRY_SCHEME=gpt\nPART_ENTRY_TYPE=e3c9e316-0b5c-4db8-817d-f92df00215ae\n",
            ),
            "sda3": content("ntfs", "filesystem", "01D5A1B2C3D4E5F6", "Windows\\ Server"),
            "sdb": content("iso9660", "filesystem", "2026-01-01-00-00-00-00", "RESCUE_CD"),
        },
        edges={"sda2": False},
        systems={"sda1": {"system": "Windows (its boot loader)", "record": ""}},
    )


def spanning(kind: str, uuid: str, usage: str = "filesystem") -> disk_facts.Raw:
    """Two SATA disks, wholly one file system, and a third one with a file system of its own."""
    return disk_facts.Raw(
        lsblk(sata("a"), sata("b"), sata("c")),
        blkid={
            "sda": content(kind, usage, uuid, "tank", UUID_SUB="1"),
            "sdb": content(kind, usage, uuid, "tank", UUID_SUB="2"),
            "sdc": content("ext4", "filesystem", uuid, "copy"),
        },
    )


def odd() -> disk_facts.Raw:
    """Disks that are never meant or hard to identify: LUKS, no size, read-only, one disk on two paths, unknown data."""
    twice = {"serial": "3500A07510A1B2C3", "wwn": "0x500a07510a1b2c3d", "tran": "sas", "model": "MICRON 5100"}
    return disk_facts.Raw(
        lsblk(
            sata("a"),
            block("sdb", 0, rm=True, model="Card Reader"),
            block("sdc", 10 * GIB, ro=True, serial="ROM"),
            block("sdd", 960 * 10**9, **twice),
            block("sde", 960 * 10**9, **twice),
            block("sdf", 100 * GIB, serial="DATA"),
            block("zram0", GIB),
            block("sr0", GIB, "rom"),
            block("loop0", GIB, "loop"),
        ),
        blkid={
            "sda": content("crypto_LUKS", "crypto", "ccc1", VERSION="2"),
            "sdc": FREE,
            "sdd": FREE,
            "sde": FREE,
            "sdf": FREE,
        },
        edges={"sdc": False, "sdd": False, "sde": False, "sdf": True},
        smart={"sda": smart(False, 8)},
    )


def disk(name: str, size: int = 512 * 10**9, **more: object) -> dict:
    """Facts of a blank disk."""
    return {
        "name": name,
        "path": f"/dev/{name}",
        "size": size,
        "kind": "sata",
        "by_id": [],
        **dict.fromkeys(("wwn", "serial", "model", "by_path"), ""),
        **dict.fromkeys(("rotational", "read_only", "removable"), False),
        "health": {"status": "unknown", "detail": ""},
        "holds": [],
        "content_id": "0",
        **more,
    }
