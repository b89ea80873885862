# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root tree → a raw disk that boots by BIOS and by UEFI: GPT, GRUB, ext4 root; without loop devices and mounts."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from pathlib import Path

from .errors import ImageError

SECTOR = 512
_CORE_START = 2048  # sectors: the BIOS boot partition, 1 MiB
_CORE_SECTORS = 2048
_ESP_START = 4096
_ESP_SECTORS = 16384  # 8 MiB, FAT16: one loader
_ROOT_START = _ESP_START + _ESP_SECTORS
_TAIL = 2048  # sectors kept free for the backup table and alignment
_GRUB = Path("/usr/lib/grub")
_MODULES = (
    "part_gpt",
    "ext2",
    "normal",
    "configfile",
    "linux",
    "search",
    "search_label",
    "serial",
    "terminal",
    "echo",
    "test",
)
_EARLY = "search --no-floppy --label root --set root\nset prefix=($root)/boot/grub\n"
_LOADER = "EFI/BOOT/BOOTX64.EFI"  # where a firmware looks that has no boot entry of its own
_TABLE = f"""label: gpt
1: start={_CORE_START}, size={_CORE_SECTORS}, type=21686148-6449-6E6F-744E-656564454649, name=bios
15: start={_ESP_START}, size={_ESP_SECTORS}, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
2: start={_ROOT_START}, size={{size}}, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
"""


def build(tree: Path, disk: Path, size_mib: int) -> None:
    """Write ``tree`` as a bootable disk of ``size_mib`` into the new sparse file ``disk``."""
    sectors = size_mib * 2048
    root_sectors = sectors - _ROOT_START - _TAIL
    with disk.open("xb") as file:
        file.truncate(sectors * SECTOR)
    _run(["sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", str(disk)], _TABLE.format(size=root_sectors))
    _run(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-m", "1", "-E", f"offset={_ROOT_START * SECTOR}",
          "-d", str(tree), str(disk), f"{root_sectors // 2}k"])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        _install_bios_loader(disk, Path(folder))
        _install_efi_loader(disk, Path(folder))


def _install_bios_loader(disk: Path, work: Path) -> None:
    """Put GRUB where a BIOS finds it: first stage in the MBR, core image in the BIOS boot partition."""
    image = bytearray(_core("i386-pc", work, "biosdisk").read_bytes())
    if len(image) > _CORE_SECTORS * SECTOR:
        raise ImageError(f"GRUB's core image has {len(image)} bytes, the BIOS boot partition only 1 MiB")
    # The core image's first sector loads the rest: tell it where the rest begins.
    struct.pack_into("<Q", image, 0x1F4, _CORE_START + 1)
    first = bytearray((_GRUB / "i386-pc/boot.img").read_bytes()[:440])
    struct.pack_into("<Q", first, 0x5C, _CORE_START)
    first[0x66:0x68] = b"\x90\x90"  # as grub-install: trust the BIOS's drive number on a hard disk
    with disk.open("r+b") as file:
        file.write(first)
        file.seek(_CORE_START * SECTOR)
        file.write(image)


def _install_efi_loader(disk: Path, work: Path) -> None:
    """Make the EFI system partition, with GRUB under the name that needs no boot entry."""
    esp = work / "esp"
    with esp.open("xb") as file:
        file.truncate(_ESP_SECTORS * SECTOR)
    _run(["mkfs.vfat", "-n", "ESP", str(esp)])
    _run(["mmd", "-i", str(esp), "::EFI", "::EFI/BOOT"])
    _run(["mcopy", "-i", str(esp), str(_core("x86_64-efi", work, "fat")), f"::{_LOADER}"])
    with disk.open("r+b") as file:
        file.seek(_ESP_START * SECTOR)
        file.write(esp.read_bytes())


def _core(target: str, work: Path, *modules: str) -> Path:
    early, core = work / "early.cfg", work / f"{target}.img"
    early.write_text(_EARLY)
    _run(["grub-mkimage", f"--format={target}", "--directory", str(_GRUB / target), "--prefix=(hd0,gpt2)/boot/grub",
          "--config", str(early), "--output", str(core), *_MODULES, *modules])  # fmt: skip
    return core


def _run(command: list[str], text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{command[0]} failed (status {done.returncode}): {(done.stderr or done.stdout).strip()}")
