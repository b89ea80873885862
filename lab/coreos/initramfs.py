# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initramfs of the live image (busybox, some kernel modules, a shell script) and its root file system."""

from __future__ import annotations

import gzip
import io
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import ImageError

_TRAILER = "TRAILER!!!"
BUSYBOX = "bin/busybox"
# What QEMU's devices need; what these depend on comes along.
_MODULES = ("virtio_pci", "virtio_net", "virtio_scsi", "virtio_blk", "sr_mod", "isofs")


@dataclass(frozen=True)
class Entry:
    """A member; ``device`` are the two numbers of a device node."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def cpio_folder(name: str) -> Entry:
    """An empty folder."""
    return Entry(name, stat.S_IFDIR | 0o755)


def cpio_file(name: str, data: bytes, mode: int = 0o644) -> Entry:
    """A file."""
    return Entry(name, stat.S_IFREG | mode, data)


def cpio_link(name: str, target: str) -> Entry:
    """A symbolic link."""
    return Entry(name, stat.S_IFLNK | 0o777, target.encode())


def cpio_device(name: str, major: int, minor: int) -> Entry:
    """A device node, which no build needs root for in an archive."""
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def cpio_archive(entries: Iterable[Entry]) -> bytes:
    """The archive; the folders of its members come before them."""
    members: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.name.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            members.setdefault(parent, cpio_folder(parent))
        members[entry.name] = entry
    ordered = [*members.values(), Entry(_TRAILER, 0)]
    return b"".join(_record(number, entry) for number, entry in enumerate(ordered, 1))


def packed(data: bytes) -> bytes:
    """gzip without name and time."""
    return gzip.compress(data, 9, mtime=0)


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def initramfs(tree: Path, files: Path, version: str) -> bytes:
    """The packed archive that the kernel starts ``/init`` of."""
    modules = list(_ordered(tree / "lib/modules" / version / "kernel"))
    names = [path.name for path in modules]
    entries = [
        *(cpio_folder(name) for name in ("dev", "proc", "run", "sys", "tmp")),
        cpio_device("dev/console", 5, 1),
        cpio_file(BUSYBOX, (tree / BUSYBOX).read_bytes(), 0o755),
        cpio_link("bin/sh", "busybox"),
        *(cpio_file(f"modules/{path.name}", path.read_bytes()) for path in modules),
        cpio_file("modules/order", "".join(f"{name}\n" for name in names).encode()),
        *(cpio_file(name, path.read_bytes(), path.stat().st_mode & 0o755) for name, path in _below(files)),
    ]
    return packed(cpio_archive(entries))


def rootfs(tree: Path, files: Path) -> bytes:
    """The archive with the root file system inside, as media have it, URLs offer it and boot loaders append it."""
    busybox = (tree / BUSYBOX).read_bytes()
    contents = {BUSYBOX: (busybox, 0o755)} | {
        name: (path.read_bytes(), path.stat().st_mode & 0o755) for name, path in _below(files)
    }
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("bin", "etc", "run", "tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, (data, mode) in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
        for applet in ("cat", "ls", "sed", "sh"):
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return cpio_archive([cpio_file("root.tar.gz", packed(sink.getvalue()))])


def _below(folder: Path) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*")) if path.is_file()]


def _ordered(kernel: Path) -> Iterator[Path]:
    """The modules, each after those it needs; a module that is part of the kernel itself needs no file."""
    found = {_name(path): path for path in sorted(kernel.rglob("*.ko"))}
    builtin = {_name(Path(line)) for line in (kernel.parent / "modules.builtin").read_text().splitlines()}
    done: set[str] = set()

    def visit(name: str) -> Iterator[Path]:
        if name in done or name in builtin:
            return
        if name not in found:
            raise ImageError(f"kernel {kernel.parent.name} has no module {name}; adapt _MODULES in {__name__} to it")
        done.add(name)
        needed = re.search(rb"(?:^|\0)depends=([^\0]*)\0", found[name].read_bytes())
        for other in needed[1].decode().split(",") if needed and needed[1] else ():
            yield from visit(other.replace("-", "_"))
        yield found[name]

    for name in _MODULES:
        yield from visit(name)


def _name(path: Path) -> str:
    """As the kernel compares names."""
    return path.name.partition(".")[0].replace("-", "_")
