# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw disk images: written from a root tree, grown onto a bigger disk, files put into them; without mounts."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from lab.errors import ImageError
from lab.machines import partition_table
from lab.machines.partition_table import SECTOR
from lab.machines.store import copy_sparse

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
_SWAP_TYPE = "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
_ALIGNMENT = 1 << 20
_SFDISK = ("sfdisk", "--quiet", "--no-reread", "--no-tell-kernel")
_HEADER = 4096  # bytes that mkswap writes: one page


def write_disk(tree: Path, disk: Path, size_mib: int) -> None:
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
    # The core image's first sector loads the rest: write into it where the rest begins.
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


def grow(source: Path, target: Path, disk_bytes: int, swap_bytes: int = 0) -> None:
    """Copy the raw image to the new disk ``target`` of this size and let its last partition, the root, fill it.

    With ``swap_bytes`` the end is a swap partition that systemd finds by itself, without a line in fstab.
    """
    copy_sparse(source, target)
    end = (disk_bytes - swap_bytes - 2 * _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT
    if end < source.stat().st_size:
        raise ImageError(f"{source.name} with {swap_bytes} bytes of swap needs a bigger disk than {disk_bytes} bytes")
    with target.open("rb") as disk:
        partitions = partition_table.parse(disk.read(partition_table.HEAD))
    root = max(partitions, key=lambda part: part.start)
    # resize2fs works on a part of a file, but cannot see how big that part is, and cuts the file behind it.
    _run(["resize2fs", "-f", f"{target}?offset={root.start}", f"{(end - root.start) // 1024}K"])
    os.truncate(target, disk_bytes)
    _run([*_SFDISK, "--relocate", "gpt-bak-std", str(target)])
    _run([*_SFDISK, "-N", str(root.number), str(target)], f", {(end - root.start) // SECTOR}\n")
    if swap_bytes:
        number = min(set(range(1, 17)) - {part.number for part in partitions})
        line = f"start={end // SECTOR}, size={swap_bytes // SECTOR}, type={_SWAP_TYPE}, name=swap\n"
        _run([*_SFDISK, "-N", str(number), str(target)], line)
        _make_swap(target, end, swap_bytes)


def put_files(raw: Path, files: Mapping[str, tuple[str, int]]) -> None:
    """Write files (absolute path → content, mode) of root into the root file system of a disk that is not in use."""
    with raw.open("rb") as disk:
        partitions = partition_table.parse(disk.read(partition_table.HEAD))
    root = max((part for part in partitions if part.kind != _SWAP_TYPE.lower()), key=lambda part: part.size)
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number, (path, (content, mode)) in enumerate(files.items()):
            source = Path(folder) / str(number)
            source.write_text(content)
            lines += [f"mkdir {parent}" for parent in reversed(PurePosixPath(path).parents[:-1])]
            lines += [f"rm {path}", f"write {source} {path}"]
            lines += [f"sif {path} mode 0{stat.S_IFREG | mode:o}", f"sif {path} uid 0", f"sif {path} gid 0"]
        script = Path(folder) / "script"
        script.write_text("\n".join(lines) + "\n")
        device = f"{raw}?offset={root.start}"
        _run(["debugfs", "-w", "-f", str(script), device])
        for path, (content, _mode) in files.items():
            # debugfs succeeds also when its commands fail: folders that were there already are no error, this is.
            shown = subprocess.run(["debugfs", "-R", f"cat {path}", device], capture_output=True, text=True, check=True)
            if shown.stdout != content:
                raise ImageError(f"{path} could not be written into {raw.name}: {shown.stderr.strip()}")


def _make_swap(disk: Path, start: int, size: int) -> None:
    with tempfile.NamedTemporaryFile(dir=disk.parent) as swap:
        swap.truncate(size)
        _run(["mkswap", swap.name])
        header = os.pread(swap.fileno(), _HEADER, 0)
    with disk.open("r+b") as file:
        file.seek(start)
        file.write(header)
