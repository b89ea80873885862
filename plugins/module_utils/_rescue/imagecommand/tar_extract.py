# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Unpacks tar archives in a process of its own, which sees no other files than those of the new system."""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import stat
import tarfile
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

from .basics import MIB, Refused
from .new_root import collect, enclose
from .tar_reader import NONSENSE, Archive, Entry, Extracted, Survey, shown

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
            raise Refused("image: the hard link %s leads to %s, which is missing" % tuple(
                shown(name) for name in (entry.name, entry.target)
            ))  # fmt: skip
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
