# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Installs a root file system from a tar archive: partitions, boot loader and bootstrap data included.

Called in a rescue system as: image-url-command-rootfs-tar IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md. The archive is unpacked in a process of its own, which
sees no other files than those of the new system.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import signal
import stat
import tarfile
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..._common.mounts import private_mounts
from .basics import MIB, Refused
from .filesystems import Layout, Volume, check_tools, make_filesystem, mounted
from .incoming import Digest, Download, Incoming, Source, Transfer
from .invocation import ImageUrl, Job, Progress, installed_record, run_program, writing
from .new_root import (
    Firmware,
    Root,
    collect,
    enclose,
    entered,
    inside,
    install_bios,
    install_efi,
    look_around,
    seed_root,
    write_into,
    write_menu,
)
from .raw_disk import FOREIGN
from .root_device import Disk, Partition, Table, Writer
from .tar_reader import NONSENSE, Archive, Entry, Extracted, Survey, shown, survey_archive

# --- Puts the members of an archive into the root folder, which is that of the new system by then.


WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
LATEST = 2**34  # seconds; a file system takes no later time


class Extraction:
    """The members of one archive on their way to the file system at /.

    Later members replace earlier ones. With `layered`, the archive is a layer of a container image: its whiteouts
    remove what earlier layers brought.
    """

    def __init__(self, survey: Survey, layered: bool) -> None:
        self.survey, self.layered = survey, layered
        self.fresh: set[bytes] = set()  # names that this archive brought, with the folders above them
        self.folders: list[
            tuple[bytes, tuple[int, int]]
        ] = []  # path and time, set when nothing is put into them any more
        self.left_out: dict[str, int] = {}

    def run(self, archive: Archive) -> Extracted:
        """Put all of it in place; return the counts."""
        for entry in archive.entries():
            if self.layered and self._whiteout(entry.name):
                continue
            self.survey.add(entry)
            self._put(entry, archive)
        for path, times in reversed(self.folders):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # replaced later on
                os.utime(path, ns=times, follow_symlinks=False)
        return {**self.survey.as_dict(), "left_out": self.left_out}

    def _put(self, entry: Entry, archive: Archive) -> None:
        path, header = b"/" + entry.name, entry.header
        above = entry.name
        while above and above not in self.fresh:
            self.fresh.add(above)
            above = above.rpartition(b"/")[0]
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        if entry.kind == "hard link":
            self._link(entry, path)
            return
        self._clear(path, keep_folder=entry.kind == "folder")
        mode = stat.S_IMODE(header.mode)
        if entry.kind == "folder":
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        elif entry.kind == "file":
            self._write(path, entry, archive)
        elif entry.kind == "symlink":
            os.symlink(entry.target, path)
        elif entry.kind == "fifo":
            os.mkfifo(path, 0o600)
        elif not self._node(path, header):
            return
        os.chown(path, header.uid, header.gid, follow_symlinks=False)
        if entry.kind != "symlink":
            os.chmod(path, mode)  # after chown, which takes setuid away
        self._label(path, entry)
        time = nanoseconds(header)
        times = (time, time)
        if entry.kind == "folder":
            self.folders.append((path, times))
        else:
            os.utime(path, ns=times, follow_symlinks=False)

    @staticmethod
    def _clear(path: bytes, keep_folder: bool) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
            elif not keep_folder:
                shutil.rmtree(path)

    def _link(self, entry: Entry, path: bytes) -> None:
        if entry.target == entry.name:
            return
        target = b"/" + entry.target
        if not os.path.lexists(target):
            raise Refused(f"image: the hard link {shown(entry.name)} leads to {shown(entry.target)}, which is missing")
        self._clear(path, keep_folder=False)
        os.link(target, path, follow_symlinks=False)

    @staticmethod
    def _write(path: bytes, entry: Entry, archive: Archive) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            for place, data in archive.data(entry):
                view = memoryview(data)
                while view:
                    done = os.pwrite(fd, view, place)
                    view, place = view[done:], place + done
            os.ftruncate(fd, entry.header.size)
        finally:
            os.close(fd)

    def _node(self, path: bytes, header: tarfile.TarInfo) -> bool:
        kind = stat.S_IFCHR if header.ischr() else stat.S_IFBLK
        try:
            os.mknod(path, kind | 0o600, os.makedev(header.devmajor, header.devminor))
        except PermissionError:  # a rescue in a container; the kernel of the new system has a /dev of its own
            self._leave_out("device nodes")
            return False
        return True

    def _label(self, path: bytes, entry: Entry) -> None:
        for name, value in extended_attributes(entry.header):
            try:
                os.setxattr(path, name, value, follow_symlinks=False)
            except OSError as error:
                if name == "security.capability" or error.errno not in (errno.EOPNOTSUPP, errno.EPERM):
                    raise Refused(f"image: {shown(entry.name)}: {name}: {error.strerror}") from None
                self._leave_out(f"attributes {name.partition('.')[0]}")
        if any(key.startswith("SCHILY.acl.") for key in entry.header.pax_headers):
            self._leave_out("ACLs in text form (pack with --xattrs instead)")

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def _whiteout(self, name: bytes) -> bool:
        folder, _slash, last = name.rpartition(b"/")
        if not last.startswith(WHITEOUT):
            return False
        if last == OPAQUE:
            self._empty(folder)
        elif not last.startswith(WHITEOUT * 2):  # marks of other storage drivers
            gone = last[len(WHITEOUT) :]
            if gone in (b"", b".", b".."):
                raise Refused(f"image: the whiteout {shown(name)} names nothing")
            victim = (folder + b"/" if folder else b"") + gone
            if victim not in self.fresh:
                self._clear(b"/" + victim, keep_folder=False)
        return True

    def _empty(self, folder: bytes) -> None:
        """Remove what earlier layers brought into a folder."""
        path = b"/" + folder
        if not os.path.isdir(path) or os.path.islink(path):
            return
        for last in os.listdir(path):
            name = (folder + b"/" if folder else b"") + last
            if name not in self.fresh:
                self._clear(b"/" + name, keep_folder=False)
            else:
                self._empty(name)


def nanoseconds(header: tarfile.TarInfo) -> int:
    """Return the time of a member, exactly: its float has lost the last digits."""
    exact = re.fullmatch(r"([0-9]{1,11})(?:\.([0-9]+))?", header.pax_headers.get("mtime", ""))
    if exact:
        return min(int(exact.group(1)), LATEST) * 10**9 + int(((exact.group(2) or "") + "0" * 9)[:9])
    return int(max(0, min(header.mtime, LATEST))) * 10**9


def extended_attributes(header: tarfile.TarInfo) -> list[tuple[str, bytes]]:
    """Return the extended attributes of a member, as GNU tar and libarchive write them."""
    found = []
    for key, value in header.pax_headers.items():
        if key.startswith("SCHILY.xattr."):
            found.append((key[len("SCHILY.xattr.") :], value.encode("utf-8", "surrogateescape")))
        elif key.startswith("LIBARCHIVE.xattr."):
            name = urllib.parse.unquote(key[len("LIBARCHIVE.xattr.") :])
            found.append((name, base64.b64decode(value + "=" * (-len(value) % 4))))
    return found


def extract(reading: int, mounts: list[str], layered: bool) -> Extracted:
    """Unpack what comes through a pipe; runs inside the new root."""

    def pieces() -> Iterator[bytes]:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            yield from iter(lambda: pipe.read(1 << 20), b"")

    try:
        return Extraction(Survey(mounts), layered).run(Archive(pieces()))
    except NONSENSE as error:
        raise Refused(f"image: the tar archive is damaged: {error}") from None


# --- Unpacks archives in a process of its own, which sees no other files than those of the new system.


class Unpacker:
    """A process that waits to unpack one archive; started before there are threads, which do not survive a fork."""

    def __init__(self, mounts: list[str], layered: bool) -> None:
        self.answer, answering = os.pipe()
        reading, self.feed = os.pipe()
        with contextlib.suppress(OSError):  # a wider pipe means fewer context switches; not everyone may have it
            fcntl.fcntl(self.feed, 1031, MIB)
        self.child = os.fork()
        if self.child == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            for fd in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, reading, answering}:
                with contextlib.suppress(OSError):  # also the ends of pipes to others like this one
                    os.close(fd)
            root = self._root(reading)
            if not root:
                os._exit(0)
            enclose(root, answering, extract, reading, mounts, layered)
        os.close(reading)
        os.close(answering)

    @staticmethod
    def _root(reading: int) -> Path | None:
        """Wait for the first line: the folder to unpack into; nothing when none comes."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(reading, 1)
            if not byte:
                return None
            line += byte
        return Path(os.fsdecode(line[:-1]))

    def unpack(self, top: Path, pieces: Iterable[bytes]) -> Extracted:
        """Unpack the archive into a mounted root; return what it held, see Survey.as_dict()."""
        with os.fdopen(self.feed, "wb", buffering=0) as pipe:
            self.feed = -1
            with contextlib.suppress(BrokenPipeError):  # its answer says why
                pipe.write(os.fsencode(str(top)) + b"\n")
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[pipe.write(view) :]
        child, self.child = self.child, 0
        held: Extracted = collect(child, self.answer)
        return held

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.feed >= 0:
            os.close(self.feed)
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = 0


# --- Installs a root file system from archives: partitioned, unpacked, named, seeded, and bootable last of all.


def check_archive_head(head: bytes) -> None:
    """Refuse what is not the beginning of a tar archive."""
    if head[257:262] == b"ustar":
        return
    for place, magic, what in FOREIGN:
        if head[place : place + len(magic)] == magic:
            raise Refused(f"image: it is not a tar archive but {what}")
    if head[510:512] == b"\x55\xaa":
        raise Refused("image: it is a raw disk image, not a tar archive; image-url-command-raw-disk writes those")
    raise Refused("image: it is not a tar archive (no ustar at byte 257)")


def check_bootstrap(_image_url: str, kind: str) -> None:
    """Refuse bootstrap data of a kind that no root file system reads."""
    if kind == "ignition":
        raise Refused("bootstrap data: it is Ignition, which root file systems do not read; give cloud-init")


class RootFs:
    """One installation: everything that can be refused before the disk is touched is refused in the constructor."""

    def __init__(
        self, job: Job, layout: Layout, sources: Sequence[tuple[Transfer, Digest]], layered: bool, progress: Progress
    ) -> None:
        """Sources are pairs of a source and its digest, in the order in which they are unpacked."""
        self.job, self.layout, self.layered, self.progress = job, layout, layered, progress
        check_bootstrap("", job.bootstrap.kind)
        self.sizes = layout.sizes(job.disk.size)
        self.esp_id = f"{secrets.randbits(32):08X}"
        self.firmware = Firmware()
        check_tools({one.fs for one in layout.volumes if one.fs not in ("", "vfat")})
        self.wanted = ["os-release", "init", "kernel", "grub-install", self.firmware.needed]
        self.wanted += ["cloud-init"] if job.bootstrap.kind == "cloud-init" else []
        self.survey = Survey(layout.mounts())
        self.downloads = [Download(source, digest, progress) for source, digest in sources]
        if all(one.kept for one in self.downloads):
            self._look_through()
        self.unpackers = [Unpacker(layout.mounts(), layered) for _one in self.downloads]
        self.incoming = [Incoming(one, one.proof()) for one in self.downloads[:1]]
        self._check_incoming(self.incoming[0])

    def _look_through(self) -> None:
        """Read all archives once without unpacking: no surprise later on."""
        survey = Survey(self.layout.mounts())
        for download in self.downloads:
            incoming = Incoming(download, download.proof())
            self._check_incoming(incoming)
            survey_archive(incoming.blocks(), survey)
        survey.check(self.wanted)
        survey.check_sizes(dict(self._mounts()))
        mb = sum(survey.bytes.values()) // 10**6
        self.progress.say(f"image: {survey.members} members, {mb} MB, proven and looked through")

    def _mounts(self) -> list[tuple[str, int]]:
        return [(one.purpose, size) for one, size in zip(self.layout.volumes, self.sizes) if one.mounted]

    def _check_incoming(self, incoming: Incoming) -> None:
        check_archive_head(incoming.head)
        room = sum(size for _mount, size in self._mounts())
        if incoming.size is not None and incoming.size > room:
            raise Refused(f"image: it has {incoming.size} bytes, its partitions only {room}")

    def install(self, work: Path, record: Callable[[], dict[str, str]]) -> None:
        """Write everything; from the end of this on the disk boots. record() is asked when the archives are proven."""
        disk, say = self.job.disk, self.progress.say
        ends = self._empty(disk)
        script = self.layout.script(disk.size)
        with contextlib.closing(Table(disk, work, *ends, script=script)) as table:
            partitions = table.partitions(work, esp=True)
            self._format(partitions)
            volumes = list(zip(self.layout.volumes, partitions))
            with self._mounted(volumes, work) as top:
                self._unpack(top)
                self.survey.check(self.wanted)
                write_into(top, "/etc/fstab", self._fstab(volumes).encode(), 0o644)
                facts = inside(top, look_around)
            root = Root(next(one for volume, one in volumes if volume.purpose == "/"), ".", facts)
            say(f"root: {root.partition}, {facts['name']}")
            seed_root(root, partitions, work, self.job.bootstrap, record(), say)
            self._boot_loaders(volumes, work)
            table.take_boot_code()
            table.commit()

    def close(self) -> None:
        for unpacker in self.unpackers:
            unpacker.close()
        for download in self.downloads:
            download.close()

    @staticmethod
    def _empty(disk: Disk) -> tuple[bytes, int, bytes]:
        with disk.exclusive() as fd:
            writer = Writer(fd, disk.size)
            disk.touched = True
            writer.prepare()
            disk.believe({})
            return writer.finish()

    def _format(self, partitions: list[Partition]) -> None:
        for volume, partition in zip(self.layout.volumes, partitions):
            if volume.purpose == "esp":  # what an earlier system left there must not boot
                with open(partition.node, "r+b") as stream:
                    stream.write(bytes(MIB))
                    os.fsync(stream.fileno())
            if volume.purpose in ("esp", "bios"):
                continue
            self.progress.say(f"{volume.purpose}: making {volume.fs} on partition {partition.number}")
            make_filesystem(volume.fs, partition.node)
            partition.probe()

    @contextlib.contextmanager
    def _mounted(self, volumes: list[tuple[Volume, Partition]], work: Path) -> Iterator[Path]:
        found = {volume.purpose: partition for volume, partition in volumes}
        with contextlib.ExitStack() as stack:
            top = work / "new"
            for mount in self.layout.mounts():
                where = top / mount.strip("/")
                if where.resolve() != where:
                    raise Refused(f"new root file system: mount point {mount} is not a plain folder")
                where.mkdir(parents=True, exist_ok=True)
                stack.enter_context(mounted(found[mount], where))
            yield top

    def _unpack(self, top: Path) -> None:
        began, say = time.monotonic(), self.progress.say
        for number, download in enumerate(self.downloads):
            incoming = self.incoming[0] if number == 0 else Incoming(download, download.proof())
            check_archive_head(incoming.head)
            say(f"image: {download.shown}, compression {incoming.kind}, onto {self.job.disk.path}")
            held = self.unpackers[number].unpack(top, self._watched(incoming, number))
            incoming.check()
            self.survey.merge(held)
            for what, count in held["left_out"].items():
                say(f"left out: {count} {what}")
        mb = sum(self.survey.bytes.values()) // 10**6
        say(f"unpacked {self.survey.members} members, {mb} MB, in {time.monotonic() - began:.1f} s")

    def _watched(self, incoming: Incoming, number: int) -> Iterator[bytes]:
        done = 0

        def state() -> str:
            return f"unpacking: {done // 10**6} MB{incoming.share()}"

        for block in incoming.blocks():
            yield block
            done += len(block)
            self.progress.tick(state, lambda: self._count(incoming, number))

    def _count(self, incoming: Incoming, number: int) -> tuple[int, int | None]:
        """Return (bytes done, bytes in all or None) of all archives as they come; ``number`` of them are unpacked."""
        sizes = [download.size for download in self.downloads if download.size is not None]
        if len(sizes) < len(self.downloads):
            return incoming.read, None
        return sum(sizes[:number]) + incoming.read, sum(sizes)

    def _fstab(self, volumes: list[tuple[Volume, Partition]]) -> str:
        lines = ["# written by the image command that installed this system"]
        order = {mount: place for place, mount in enumerate(self.layout.mounts())}
        for volume, partition in sorted(volumes, key=lambda one: order.get(one[0].purpose, 99)):
            uuid = partition.uuid
            if volume.purpose == "esp":  # made last of all, and only for an image that boots by UEFI
                uuid = f"{self.esp_id[:4]}-{self.esp_id[4:]}" if self._halves()[0] else ""
            if uuid:
                lines.append(f"UUID={uuid} {fstab_fields(volume.purpose, volume.fs)}")
        return "\n".join(lines) + "\n"

    def _halves(self) -> tuple[bool, bool]:
        return self.firmware.halves(self.survey.found)

    def _boot_loaders(self, volumes: list[tuple[Volume, Partition]], work: Path) -> None:
        """Install GRUB for both kinds of firmware if that can be, for this machine's in any case."""
        uefi, bios = self._halves()
        esp = next(partition for volume, partition in volumes if volume.purpose == "esp")
        partitions = [partition for _volume, partition in volumes]
        with self._mounted(volumes, work) as top, entered(top, self.job.disk, partitions) as call:
            write_menu(top, call)
            os.sync()
            if uefi:  # until now there was nothing that a firmware could take for a boot partition
                make_filesystem("vfat", esp.node, "-i", self.esp_id)
                esp.probe()
                with mounted(esp, esp_folder(top)):
                    install_efi(top, call, self.firmware.efi_half)
            if bios:
                install_bios(top, call, self.firmware.bios_half, self.job.disk.path)
        ways = [name for name, done in (("UEFI", uefi), ("BIOS", bios)) if done]
        self.progress.say(f"boot loader: GRUB for {' and '.join(ways)}")


def esp_folder(top: Path) -> Path:
    """Make the mount point of the ESP."""
    folder = top / "boot/efi"
    if folder.parent.resolve() != folder.parent or folder.is_symlink():
        raise Refused("new root file system: mount point /boot/efi is not a plain folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fstab_fields(purpose: str, fs: str) -> str:
    if purpose == "swap":
        return "none swap sw 0 0"
    if purpose == "esp":  # a machine should start also when its boot loader's folder is damaged
        return "/boot/efi vfat umask=0077,nofail 0 1"
    options = "errors=remount-ro" if fs == "ext4" and purpose == "/" else "defaults"
    check = {"ext4": 1 if purpose == "/" else 2}.get(fs, 0)
    return f"{purpose} {fs} {options} 0 {check}"


NAME = "image-url-command-rootfs-tar"


class TarUrl(ImageUrl):
    SWITCHES = ("sha256", "sha512", "keys", "stall", "layout")


def examined(image_url: str) -> tuple[TarUrl, Layout]:
    """Take the image URL apart; refuse what no machine is needed for, which the controller asks for first."""
    url = TarUrl(image_url)
    Digest.given(url)
    return url, Layout(url.switches.get("layout", ""))


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, _token: str) -> None:
    """Check every input, write the system, make it this machine's; leave a disk that does not boot on any failure."""
    url, layout = examined(image_url)
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    private_mounts()
    job.disk.check()
    source = Source(url, NAME, say=progress.say)
    digest = Digest.of(source)
    with contextlib.closing(RootFs(job, layout, [(source, digest)], False, progress)) as rootfs:
        with writing(job.disk, progress) as work:
            rootfs.install(work, lambda: installed_record(job.machine, url.shown(), digest.found(), NAME))
    progress.say(f"{machine}: installed on {job.disk.path}")


def main(arguments: list[str]) -> int:
    return run_program(NAME, install, arguments)
