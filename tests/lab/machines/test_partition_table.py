# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partition tables and boot decisions, on disks made with sfdisk."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.machines.partition_table import ESP, NoTable, Partition, parse, read, why_not

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk.raw"
    path.touch()
    os.truncate(path, 64 * MIB)
    return path


def partition(disk: Path, script: str) -> None:
    subprocess.run(
        ["sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", str(disk)], input=script.encode(), check=True
    )


def table(disk: Path) -> list[Partition]:
    with disk.open("rb") as file:
        return read(file.fileno(), disk.stat().st_size)


def with_boot_code(disk: Path) -> None:
    with disk.open("r+b") as file:
        file.write(b"\xeb\x63\x90")


def test_gpt(disk: Path) -> None:
    partition(disk, f"label: gpt\n5 : start=2048, size=2048, type={ESP}\n2 : start=8192, size=4096\n")
    assert [(part.number, part.start, part.size) for part in table(disk)] == [(2, 4 * MIB, 2 * MIB), (5, MIB, MIB)]
    assert table(disk)[1].kind == ESP


def test_mbr_without_its_extended_partition(disk: Path) -> None:
    partition(disk, "label: dos\n1 : start=2048, size=2048, type=83\n2 : start=8192, size=4096, type=5\n")
    assert table(disk) == [Partition(1, "0x83", MIB, MIB)]


def test_partition_beyond_the_end_does_not_count(disk: Path) -> None:
    partition(disk, "label: gpt\nstart=2048, size=2048\nstart=65536, size=2048\n")
    os.truncate(disk, 16 * MIB)
    assert [part.number for part in table(disk)] == [1]


@pytest.mark.parametrize("head", [b"", b"\0" * 512, b"\0" * 510 + b"\x55\xaa"])
def test_no_table(head: bytes) -> None:
    with pytest.raises(NoTable):
        parse(head)


def test_damaged_gpt(disk: Path) -> None:
    partition(disk, "label: gpt\nstart=2048, size=2048\n")
    with disk.open("r+b") as file:
        file.seek(512)
        file.write(b"\0" * 512)
    with pytest.raises(NoTable, match="damaged"):
        table(disk)
    assert "damaged" in (why_not(disk, uefi=False) or "")


def test_empty_disk_does_not_boot(disk: Path) -> None:
    assert why_not(disk, uefi=False) == "No bootable device: the disk has no partition table."


def test_partitions_without_boot_code_do_not_boot(disk: Path) -> None:
    partition(disk, "label: gpt\nstart=2048, size=2048\n")
    assert "no boot code" in (why_not(disk, uefi=False) or "")
    with_boot_code(disk)
    assert why_not(disk, uefi=False) is None
    assert "no EFI/BOOT/BOOTX64.EFI" in (why_not(disk, uefi=True) or "")


def test_esp_boots_only_with_a_loader(disk: Path) -> None:
    partition(disk, f"label: gpt\nstart=2048, size=32768, type={ESP}\n")
    assert why_not(disk, uefi=True) is not None
    with disk.open("r+b") as file:
        file.seek(MIB + 510)
        file.write(b"\x55\xaa")
    assert why_not(disk, uefi=True) is not None
    with disk.open("r+b") as file:
        file.seek(3 * MIB - 4)  # across the border of two reads
        file.write(b"BOOTX64 EFI")
    assert why_not(disk, uefi=True) is None
