# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initramfs of the live image (busybox, some kernel modules, a shell script) and its root file system."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from lab.images import ImageError

from . import newc

BUSYBOX = "bin/busybox"
# What QEMU's devices need; what these depend on comes along.
_MODULES = ("virtio_pci", "virtio_net", "virtio_scsi", "virtio_blk", "sr_mod", "isofs")


def initramfs(tree: Path, files: Path, version: str) -> bytes:
    """The packed archive that the kernel starts ``/init`` of."""
    modules = list(_ordered(tree / "lib/modules" / version / "kernel"))
    names = [path.name for path in modules]
    entries = [
        *(newc.folder(name) for name in ("dev", "proc", "run", "sys", "tmp")),
        newc.character_device("dev/console", 5, 1),
        newc.file(BUSYBOX, (tree / BUSYBOX).read_bytes(), 0o755),
        newc.link("bin/sh", "busybox"),
        *(newc.file(f"modules/{path.name}", path.read_bytes()) for path in modules),
        newc.file("modules/order", "".join(f"{name}\n" for name in names).encode()),
        *(newc.file(name, path.read_bytes(), path.stat().st_mode & 0o755) for name, path in _below(files)),
    ]
    return newc.pack(newc.archive(entries))


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
    return newc.archive([newc.file("root.tar.gz", newc.pack(sink.getvalue()))])


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
