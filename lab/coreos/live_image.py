# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live image put together: its initramfs, and the layout that coreos-installer expects, as reproducible bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.apt import Archive, package_field
from lab.cache import Progress
from lab.errors import ImageError
from lab.images.recipe import SUITE

_KERNEL = "linux-image-cloud-amd64"  # small, and has every driver of QEMU's own devices
_PACKAGES = (_KERNEL, "busybox-static", "isolinux", "syslinux-common")
AREA = 1139  # bytes of an area, as in CoreOS of x86_64
_MARK = b"@ARGUMENTS@"
_GRUB_MODULES = (
    "configfile",
    "fat",
    "iso9660",
    "linux",
    "normal",
    "part_gpt",
    "part_msdos",
    "search",
    "search_fs_file",
)
SECTOR = 2048
RECIPE_BYTES = 16 * 1024  # bytes of the file in the full image
_MADE_BY = b"0.20.0"
_LINE = re.compile(r"File data lba:\s+[0-9]+ ,\s+([0-9]+) ,\s+[0-9]+ ,\s+([0-9]+) , '(.*)'\Z")
LABEL = "lab-coreos-1"
ARGUMENTS = f"coreos.liveiso={LABEL} ignition.firstboot ignition.platform.id=metal mitigations=off"
EMBED_AREA = 256 * 1024
FILES = {
    "iso": "coreos.iso",
    "kernel": "vmlinuz",
    "initramfs": "initrd.img",
    "rootfs": "rootfs.img",
    "busybox": "busybox",
}
_EPOCH = 1_700_000_000  # the one time in the image
_PROGRAMS = {"xorriso": "xorriso", "grub-mkimage": "grub-common", "mformat": "mtools", "dpkg-deb": "dpkg"}
_KARGS = {"isolinux/isolinux.cfg": "isolinux.cfg", "EFI/fedora/grub.cfg": "grub.cfg"}
_ROOTFS, _MINISO = "images/pxeboot/rootfs.img", "coreos/miniso.dat"  # what a minimal image lacks


def unpack_packages(folder: Path) -> Path:
    """The tree of the packages, in ``folder``."""
    tree, debs = folder / "packages", folder / "debs"
    debs.mkdir(parents=True)
    with cache.locked("mirror"):
        archive = Archive(SUITE)
        found = archive.download(_PACKAGES, debs)
        (meta,) = (deb for deb in found if deb.name.startswith(_KERNEL))
        kernel = re.match(r"linux-image-[a-z0-9.+-]+", package_field(meta, "Depends"))
        if kernel is None:
            raise ImageError(f"package {_KERNEL} of {SUITE} depends on no kernel")
        meta.unlink()
        found = archive.download((kernel[0],), debs)
    for deb in found:
        subprocess.run(["dpkg-deb", "--extract", str(deb), str(tree)], check=True)
    return tree


@dataclass(frozen=True)
class BootSettings:
    """A boot loader's settings with the arguments in them, and where the area begins in the text."""

    text: bytes
    offset: int


def boot_settings(template: Path, arguments: str) -> BootSettings:
    """Fill in the arguments: they end with a line break, the rest of the area is a comment."""
    text = template.read_bytes()
    if text.count(_MARK) != 1:
        raise ImageError(f"{template.name} has not exactly one {_MARK.decode()}")
    content = (arguments.encode() + b"\n").ljust(AREA, b"#")
    return BootSettings(text.replace(_MARK, content), text.index(_MARK))


def efi_image(early: Path, scratch: Path, epoch: int) -> bytes:
    """A FAT file system with GRUB as UEFI looks for it on removable media."""
    program, image = scratch / "BOOTX64.EFI", scratch / "efiboot.img"
    _run("grub-mkimage", "-O", "x86_64-efi", "-p", "/EFI/fedora", "-c", early, "-o", program, *_GRUB_MODULES)
    sectors = (program.stat().st_size // 512 + 512) // 64 * 64
    _run(
        "mformat", "-C", "-i", image, "-N", "4c414231", "-v", "EFI", "-T", sectors, "-h", 2, "-s", 32, "::", epoch=epoch
    )
    _run("mmd", "-i", image, "::/EFI", "::/EFI/BOOT", epoch=epoch)
    os.utime(program, (epoch, epoch))
    _run("mcopy", "-m", "-i", image, program, "::/EFI/BOOT/BOOTX64.EFI", epoch=epoch)
    return image.read_bytes()


def _run(program: str, *arguments: object, epoch: int = 0) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "TZ": "UTC"}
    done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{program} failed (status {done.returncode}): {done.stderr.strip()[-500:]}")


def minimal_recipe(full: Path, small: Path) -> bytes:
    """The recipe; files of one name and content are shared, everything else is the rest."""
    whole, wanted = full.read_bytes(), small.read_bytes()
    here, there = iso_extents(full), iso_extents(small)
    table, rest, at = [], b"", 0
    for name, (sector, length) in sorted(there.items(), key=lambda item: item[1]):
        begin, source = sector * SECTOR, here.get(name, (0, 0))[0] * SECTOR
        if not source or begin < at or whole[source : source + length] != wanted[begin : begin + length]:
            continue
        table.append((sector, source // SECTOR, length))
        rest += wanted[at:begin]
        at = begin + length
    rest += wanted[at:]
    return encode_recipe(table, hashlib.sha256(wanted).digest(), rest)


def encode_recipe(table: list[tuple[int, int, int]], digest: bytes, rest: bytes) -> bytes:
    """The recipe as bytes; it must fit into the space that the full image keeps for it."""
    packed = lzma.compress(rest, lzma.FORMAT_XZ, lzma.CHECK_CRC32, preset=9)
    found = b"MINISO\0\0" + _number(1) + _number(len(_MADE_BY)) + _MADE_BY + _number(len(table))
    found += b"".join(_number(value) for entry in table for value in entry)
    found += digest + _number(len(packed)) + packed
    if len(found) > RECIPE_BYTES:
        raise ImageError(f"the recipe of the minimal ISO has {len(found)} bytes, {RECIPE_BYTES} is the most")
    return found


def iso_extents(iso: Path) -> Mapping[str, tuple[int, int]]:
    """Every file with content of an ISO: its first sector and its length, as xorriso reads them."""
    command = ["xorriso", "-indev", str(iso), "-find", "/", "-type", "f", "-exec", "report_lba"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [match.groups() for match in map(_LINE.match, report.splitlines()) if match]
    return {name: (int(sector), int(length)) for sector, length, name in found if int(length)}


def _number(value: int) -> bytes:
    for limit, mark, size in ((251, b"", 1), (1 << 16, b"\xfb", 2), (1 << 32, b"\xfc", 4), (1 << 64, b"\xfd", 8)):
        if value < limit:
            return mark + value.to_bytes(size, "little")
    raise ImageError(f"{value} does not fit into 8 bytes")


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


def gzipped(data: bytes) -> bytes:
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
    modules = list(_modules_in_order(tree / "lib/modules" / version / "kernel"))
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
    return gzipped(cpio_archive(entries))


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
    return cpio_archive([cpio_file("root.tar.gz", gzipped(sink.getvalue()))])


def _below(folder: Path) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*")) if path.is_file()]


def _modules_in_order(kernel: Path) -> Iterator[Path]:
    """The modules, each after those it needs; a module that is part of the kernel itself needs no file."""
    found = {_module_name(path): path for path in sorted(kernel.rglob("*.ko"))}
    builtin = {_module_name(Path(line)) for line in (kernel.parent / "modules.builtin").read_text().splitlines()}
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


def _module_name(path: Path) -> str:
    """As the kernel compares names."""
    return path.name.partition(".")[0].replace("-", "_")


SOURCES = Path(__file__).parent / "files"


def build(folder: Path, progress: Progress) -> dict[str, str]:
    """Build all of FILES in ``folder``; returns what else is to be known of them."""
    _require_programs()
    progress("coreos: unpacking kernel, busybox and boot loader of Debian packages")
    scratch = folder / "scratch"
    tree = unpack_packages(scratch)
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    version = kernel.name.removeprefix("vmlinuz-")
    shutil.copyfile(kernel, folder / FILES["kernel"])
    shutil.copy(tree / BUSYBOX, folder / FILES["busybox"])
    (folder / FILES["initramfs"]).write_bytes(initramfs(tree, SOURCES / "initramfs", version))
    (folder / FILES["rootfs"]).write_bytes(rootfs(tree, SOURCES / "root"))
    progress("coreos: writing the ISO")
    small = _write_iso(folder, tree, scratch)
    shutil.rmtree(scratch)
    return {"kernel_version": version, "minimal_sha256": small}


def _write_iso(folder: Path, tree: Path, scratch: Path) -> str:
    """Both images; the full one gets the recipe of the other, whose digest is returned."""
    contents = _contents(folder, tree, scratch)
    mbr = tree / "usr/lib/ISOLINUX/isohdpfx.bin"
    full, small = folder / FILES["iso"], scratch / "minimal.iso"
    _xorriso(contents, full, mbr, scratch / "full")
    _xorriso({name: data for name, data in contents.items() if name not in (_ROOTFS, _MINISO)}, small, mbr,
             scratch / "minimal")  # fmt: skip
    sector, _length = iso_extents(full)[f"/{_MINISO}"]
    with full.open("r+b") as file:
        file.seek(sector * SECTOR)
        file.write(minimal_recipe(full, small))
    os.utime(full, (_EPOCH, _EPOCH))
    return hashlib.sha256(small.read_bytes()).hexdigest()


def _contents(folder: Path, tree: Path, scratch: Path) -> dict[str, bytes]:
    """Every file of the full image."""
    syslinux = tree / "usr/lib/syslinux/modules/bios"
    settings = {path: boot_settings(SOURCES / "boot" / name, ARGUMENTS) for path, name in _KARGS.items()}
    arguments = {
        "default": ARGUMENTS,
        "files": [{"path": path, "offset": found.offset} for path, found in settings.items()],
        "size": AREA,
    }
    return {
        "coreos/features.json": _json({"installer-config": False, "live-initrd-network": True}),
        "coreos/igninfo.json": _json({"file": "images/ignition.img"}),
        "coreos/kargs.json": _json(arguments),
        _MINISO: bytes(RECIPE_BYTES),
        "images/efiboot.img": efi_image(SOURCES / "boot/early.cfg", scratch, _EPOCH),
        "images/ignition.img": bytes(EMBED_AREA),
        "images/pxeboot/initrd.img": (folder / FILES["initramfs"]).read_bytes(),
        "images/pxeboot/vmlinuz": (folder / FILES["kernel"]).read_bytes(),
        _ROOTFS: (folder / FILES["rootfs"]).read_bytes(),
        "isolinux/isolinux.bin": (tree / "usr/lib/ISOLINUX/isolinux.bin").read_bytes(),
        "isolinux/ldlinux.c32": (syslinux / "ldlinux.c32").read_bytes(),
        **{path: found.text for path, found in settings.items()},
    }


def _xorriso(contents: dict[str, bytes], target: Path, mbr: Path, tree: Path) -> None:
    """An ISO that boots from CD and disk, with BIOS and UEFI; what a minimal image lacks lies behind all else."""
    for name, data in contents.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    weights = [word for name in (_ROOTFS, _MINISO) if name in contents
               for word in ("--sort-weight", "-1", f"/{name}")]  # fmt: skip
    command = [
        "xorriso", "-as", "mkisofs", "-quiet", "-o", str(target), "-V", LABEL, "-R", "-J",
        "-uid", "0", "-gid", "0", "-dir-mode", "0555", "-file-mode", "0444", "--set_all_file_dates", f"={_EPOCH}",
        *weights,
        "-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4",
        "-boot-info-table", "-isohybrid-mbr", str(mbr),
        "-eltorito-alt-boot", "-e", "images/efiboot.img", "-no-emul-boot", "-isohybrid-gpt-basdat",
        str(tree),
    ]  # fmt: skip
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(_EPOCH), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"xorriso failed (status {done.returncode}):\n{done.stderr.strip()[-1000:]}")


def _json(data: object) -> bytes:
    return json.dumps(data, indent=2).encode() + b"\n"


def _require_programs() -> None:
    missing = sorted({package for program, package in _PROGRAMS.items() if not shutil.which(program)})
    if not Path("/usr/lib/grub/x86_64-efi/fat.mod").exists():
        missing.append("grub-efi-amd64-bin")
    if missing:
        raise ImageError(f"building the live image needs Debian packages; run: apt-get install {' '.join(missing)}")
