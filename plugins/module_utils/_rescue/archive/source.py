# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a node image is made of: a root file system, here or on a disk, and whether it may become one.

Nothing in it is run, no link is followed. Of a disk, the root file system is found and mounted read-only, where no
other program sees it. Or the disk becomes a raw image of its own content: the root file system shrunk, what it does not
use zeroed. What of that disk it writes to is given up: the caller's disk is a temporary one. The same disk gives the
same bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._common.mounts import private_mounts
from ..._common.text import json_object, whole_number
from ..disks.disk_tools import Tools
from ..installimage import config_words
from .tree import NotPacked

_MOST = 1 << 20
_RELEASES = ("usr/lib/os-release", "etc/os-release")
_PROGRAMS = ("usr/lib/systemd/systemd", "lib/systemd/systemd", "usr/bin/env", "bin/busybox", "usr/bin/busybox")
#: Machine type of ELF → what the kernel calls it.
_ELF = {3: "i686", 62: "x86_64", 183: "aarch64"}
#: ID of os-release → the word that installimage looks for.
_DISTROS = {"almalinux": "alma", "opensuse-leap": "suse", "opensuse-tumbleweed": "suse", "sles": "suse"}
_DPKG = "var/lib/dpkg/info"
#: Files that only one machine can have.
_KEYS = re.compile(r"(?:ssh_host_[a-z0-9]+|dropbear_[a-z0-9]+_host)_key\Z")
_OF_ONE = (
    ("etc/kubernetes/kubelet.conf", "it has joined a cluster"),
    ("etc/kubernetes/bootstrap-kubelet.conf", "it holds a cluster's bootstrap token"),
    ("var/lib/kubelet/pki", "it holds a node's keys"),
    ("var/lib/cloud/instance", "cloud-init ran for one machine"),
    ("root/.ssh/authorized_keys", "it lets its owner log in"),
    ("etc/kubenode/installed.json", "it is recorded as installed on one machine"),
)


class Root:
    """Facts of the root file system below ``top``."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.release: dict[str, str] = next((found for found in map(self._release, _RELEASES) if found), {})
        if not self.release:
            raise NotPacked(f"{top} is no root file system: there is neither /usr/lib/os-release nor /etc/os-release")
        self.name = self.release.get("PRETTY_NAME") or self.release.get("NAME") or "unknown system"
        self.machine = self._machine()
        self.base = self._base()

    def check_name(self, file_name: str) -> None:
        """Refuse a file name in which installimage reads another distribution, version or architecture."""
        try:
            named = config_words.parse_image_name(file_name)
        except config_words.InvalidImageName as error:
            raise NotPacked(f"name {file_name!r}: {error}") from error
        own = self.release.get("ID", "")
        own = _DISTROS.get(own, own)
        if own != named.distro:
            raise NotPacked(
                f"name {file_name!r}: installimage takes it for {named.distro}, and the root file system is {own}"
            )
        digits = re.sub(r"[^0-9]", "", self.release.get("VERSION_ID", ""))
        if named.version and digits and not str(named.version).startswith(digits):
            raise NotPacked(
                f"name {file_name!r}: its version is {named.version}, and the root file system is {self.name}; begin "
                f"the number with {digits}"
            )
        if self.machine and named.machine != self.machine:
            raise NotPacked(f"name {file_name!r}: it says {named.machine}, the programs are {self.machine}")

    def faults(self) -> list[str]:
        """What speaks against a node image of it: not prebaked, or one machine's identity is in it."""
        found = []
        if not self.base.get("prebaked"):
            found.append("/etc/kubenode/base.json does not say that base was prebaked")
        if self._text("etc/machine-id").strip() not in ("", "uninitialized"):
            found.append("/etc/machine-id is one machine's; node_cleanup empties it")
        for folder in ("etc/ssh", "etc/dropbear/initramfs"):
            keys = [name for name in self._names(folder) if _KEYS.match(name)]
            if keys:
                found.append(f"/{folder} holds host keys ({', '.join(sorted(keys))})")
        for path, why in _OF_ONE:
            if self._exists(path):
                found.append(f"/{path} is there: {why}")
        return found

    def epoch(self) -> int:
        """The time of the newest file that a package brought, in seconds; without packages that of os-release."""
        newest = 0
        for listing in sorted(name for name in self._names(_DPKG) if name.endswith(".list")):
            for path in self._text(_DPKG + "/" + listing, 64 * _MOST).splitlines():
                if path.startswith("/usr/"):
                    newest = max(newest, self._file_time(path))
        return newest or max(self._file_time("/" + path) for path in _RELEASES)

    def _file_time(self, path: str) -> int:
        try:
            info = os.lstat(self.top + path)
        except OSError:
            return 0
        return int(info.st_mtime) if stat.S_ISREG(info.st_mode) else 0

    def _release(self, path: str) -> dict[str, str]:
        values = {}
        for line in self._text(path).splitlines():
            match = re.match(r"([A-Z_0-9]+)=(.*)\Z", line.strip())
            if match:
                values[match.group(1)] = match.group(2).strip("\"'")
        return values

    def _machine(self) -> str:
        for path in _PROGRAMS:
            head = self._bytes(path, 20)
            if head[:4] == b"\x7fELF":
                number = int.from_bytes(head[18:20], "big" if head[5:6] == b"\x02" else "little")
                return _ELF.get(number, f"machine type {number}")
        return ""

    def _base(self) -> dict[str, Any]:
        return json_object(self._text("etc/kubenode/base.json")) or {}

    def _exists(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self.top, path))

    def _names(self, folder: str) -> list[str]:
        if not self._plain(folder):
            return []
        try:
            return os.listdir(os.path.join(self.top, folder))
        except OSError:
            return []

    def _text(self, path: str, most: int = _MOST) -> str:
        return self._bytes(path, most).decode("utf-8", "replace")

    def _bytes(self, path: str, most: int) -> bytes:
        """The begin of a regular file; empty when there is none. Links in the file system must not lead out of it."""
        if not self._plain(os.path.dirname(path)):
            return b""
        try:
            fd = os.open(os.path.join(self.top, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            data = b""
            while len(data) < most:
                piece = os.read(fd, most - len(data))
                if not piece:
                    break
                data += piece
            return data
        finally:
            os.close(fd)

    def _plain(self, folder: str) -> bool:
        """Whether a folder is reached without a link."""
        path = self.top
        for word in folder.split("/"):
            path = os.path.join(path, word)
            if os.path.islink(path):
                return False
        return True


#: Read-only, and without a byte of it being changed by the replay of a journal.
_OPTIONS = {"ext4": "ro,noload", "ext3": "ro,noload", "ext2": "ro", "xfs": "ro,norecovery,nouuid", "btrfs": "ro"}
_MOST_SECTORS = 1 << 53
_HARMLESS = "nosuid,nodev,noexec"
#: Sub-volumes of btrfs that hold the root of a system.
_SUBVOLUMES = ("", "@", "@rootfs", "root")
#: Mount points in fstab that belong to the system although they are not on the root file system.
_PARTS = ("/boot", "/usr", "/var", "/opt", "/home", "/srv")


class Partition:
    """A partition: its node, number, file system and names as fstab may call it; begin and size in bytes."""

    def __init__(self, node: str, number: int, tags: dict[str, str], start: int, size: int) -> None:
        self.node, self.number, self.start, self.size = node, number, start, size
        self.kind = tags.get("TYPE", "")
        self.uuid = tags.get("UUID", "")
        self.names = {"UUID=" + self.uuid, "LABEL=" + tags.get("LABEL", "")}
        self.names |= {"PARTUUID=" + tags.get("PART_ENTRY_UUID", ""), "PARTLABEL=" + tags.get("PART_ENTRY_NAME", "")}


class Disk:
    """A whole disk (block device) that holds one system."""

    def __init__(self, tools: Tools, path: str) -> None:
        self._tools, self.path = tools, path
        if not stat.S_ISBLK(os.stat(path).st_mode):
            raise NotPacked(f"source {path}: it is neither a folder nor a disk")
        self.partitions = self._partitions()

    def run(self, *argv: str, limit: float = 60, accept: Sequence[int] = (0,)) -> str:
        """Standard output of a tool that must succeed; ``limit``: seconds, ``accept``: exit codes of success."""
        code, out, err = self._tools(*argv, limit=limit)
        if code not in accept:
            raise NotPacked(f"{self.path}: {argv[0]} failed (exit code {code}): {(err or out).strip()[-500:]}")
        return out

    @contextlib.contextmanager
    def mounted(self) -> Iterator[tuple[str, Partition, list[str]]]:
        """Folder with the root file system, and :class:`Partition` that it is; all mounts end with the program."""
        private_mounts()
        folder = tempfile.mkdtemp(prefix="kubenode-", dir="/run" if os.access("/run", os.W_OK) else None)
        mounts = []
        try:
            found = []
            for partition in self.partitions:
                if partition.kind in _OPTIONS:
                    found += [(partition, sub) for sub in self._roots(partition, folder)]
            if not found:
                kinds = ", ".join(f"{one.node}: {one.kind or '?'}" for one in self.partitions) or "no partition"
                raise NotPacked(f"{self.path} holds no root file system ({kinds})")
            if len(found) > 1:
                raise NotPacked(
                    f"{self.path} holds several systems ({', '.join(one.node for one, _sub in found)}); keep one"
                )
            partition, sub = found[0]
            self._mount(partition, folder, sub)
            mounts.append(folder)
            yield folder, partition, self._mount_parts(folder, mounts)
        finally:
            for mount in reversed(mounts):
                self._tools("umount", mount)
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _roots(self, partition: Partition, folder: str) -> list[str]:
        found = []
        for sub in _SUBVOLUMES if partition.kind == "btrfs" else ("",):
            if not self._mount(partition, folder, sub, must=not sub):
                continue
            try:
                Root(folder)
                found.append(sub)
            except NotPacked:
                pass
            finally:
                self.run("umount", folder)
        return found

    def _mount(self, partition: Partition, folder: str, sub: str = "", must: bool = True) -> bool:
        if partition.kind in ("ext3", "ext4"):
            features = self.run("dumpe2fs", "-h", partition.node)
            if "needs_recovery" in features:
                raise NotPacked(f"{partition.node} was not shut down cleanly or is in use; power the machine off first")
        options = ",".join([_OPTIONS[partition.kind], _HARMLESS] + (["subvol=" + sub] if sub else []))
        code, _out, err = self._tools("mount", "--types", partition.kind, "--options", options, partition.node, folder)
        if code != 0 and must:
            raise NotPacked(f"{partition.node} cannot be mounted: {err.strip()[-300:]}")
        return code == 0

    def _mount_parts(self, folder: str, mounts: list[str]) -> list[str]:
        """Mount what the system itself would mount below its root, from the same disk."""
        crossed = []
        for line in _fstab(folder):
            if len(line) < 3 or line[1] not in _PARTS:
                continue
            partition = next((one for one in self.partitions if line[0] in one.names), None)
            if partition is None or partition.kind not in _OPTIONS:
                raise NotPacked(f"{self.path}: its fstab wants {line[0]} for {line[1]}, which is not there")
            where = folder + line[1]
            if os.path.realpath(where) != where or not os.path.isdir(where):
                raise NotPacked(f"{self.path}: {line[1]} of its fstab is no plain folder")
            sub = next((word[7:] for word in (line[3:4] or [""])[0].split(",") if word.startswith("subvol=")), "")
            self._mount(partition, where, sub)
            mounts.append(where)
            crossed.append(line[1])
        return crossed

    def _partitions(self) -> list[Partition]:
        listing = self.run("lsblk", "--json", "--list", "--output", "PATH,TYPE", self.path)
        rows = (json_object(listing) or {}).get("blockdevices") or []
        found = []
        for node in [row["path"] for row in rows if row.get("type") == "part"]:
            tags = self._tags(node)
            values = [tags.get("PART_ENTRY_" + key) or "0" for key in ("NUMBER", "OFFSET", "SIZE")]
            number, start, size = (whole_number(one, _MOST_SECTORS) for one in values)
            if number is None or start is None or size is None:
                raise NotPacked(f"{node}: blkid does not tell number, start and size of it")
            found.append(Partition(node, number, tags, start * 512, size * 512))
        return sorted(found, key=lambda one: one.start)

    def _tags(self, node: str) -> dict[str, str]:
        _code, out, _err = self._tools("blkid", "--probe", "--output", "export", node)
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def _fstab(folder: str) -> list[list[str]]:
    path = os.path.join(folder, "etc/fstab")
    if os.path.islink(os.path.join(folder, "etc")) or os.path.islink(path) or not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = [line.split("#")[0].split() for line in stream.read(1 << 20).splitlines()]
    return sorted([line for line in lines if line], key=lambda line: line[1:2])


MIB = 1 << 20
SECTOR = 512
#: Free room that stays in the root file system, for a target that cannot grow it.
_SLACK = 256 * MIB
#: Behind the last partition: the second partition table.
_TAIL = MIB
_PIECE = 1 << 20


class RawImage:
    """The image of a disk whose last partition is the root file system, an ext4."""

    def __init__(self, disk: Disk, root: Partition, epoch: int) -> None:
        self._disk, self._root, self._epoch = disk, root, epoch
        if root.kind != "ext4" or disk.partitions[-1].node != root.node:
            raise NotPacked(
                f"raw image: the root file system must be an ext4 on the last partition, and it is {root.kind} on "
                f"{root.node}; install the archive by image-url-command-rootfs-tar instead"
            )

    def write(self, write: Callable[[bytes], object]) -> int:
        """Shrink, and hand out the image piece by piece; returns its size in bytes."""
        length = self._shrink()
        size = self._root.start + length + _TAIL
        with tempfile.TemporaryFile(dir="/run" if os.access("/run", os.W_OK) else None) as table:
            self._table(table.fileno(), size, length)
            self._head(table.fileno(), write)
            self._file_system(length, write)
            write(os.pread(table.fileno(), _TAIL, size - _TAIL))
        return size

    def _tool(self, *argv: str, accept: Sequence[int] = (0,)) -> str:
        # times that e2fsprogs writes would be the only difference between two images of a disk
        return self._disk.run("env", f"E2FSPROGS_FAKE_TIME={self._epoch}", *argv, limit=1800, accept=accept)

    def _shrink(self) -> int:
        node = self._root.node
        self._tool("e2fsck", "-f", "-y", node, accept=(0, 1))  # 1: it repaired something
        answer = self._tool("resize2fs", "-P", node)
        header = self._disk.run("dumpe2fs", "-h", node)
        found = re.search(r"^Block size: +([0-9]+)$", header, re.M)
        block, blocks = whole_number(found and found.group(1)), whole_number(answer.rpartition(":")[2].strip())
        if block is None:
            raise NotPacked(f"raw image: dumpe2fs tells no block size of {node}")
        if blocks is None:
            raise NotPacked(f"raw image: resize2fs does not tell how small the file system of {node} can be")
        smallest = blocks * block
        length = min(self._root.size, -(-(smallest + _SLACK) // MIB) * MIB)
        self._tool("resize2fs", node, f"{length // 1024}K")
        self._tool("e2fsck", "-f", "-y", node, accept=(0, 1))  # 1: it repaired something
        return length

    def _table(self, fd: int, size: int, length: int) -> None:
        """The partition table as it must be on a disk of the image's size, with all its names and UUIDs."""
        with open(self._disk.path, "rb") as source:
            os.pwrite(fd, source.read(MIB), 0)
        os.ftruncate(fd, size)
        dump = self._disk.run("sfdisk", "--dump", self._disk.path)
        lines = [line for line in dump.splitlines() if not line.startswith(("device:", "last-lba:", "sector-size:"))]
        node = re.escape(self._root.node)
        wanted = "\n".join(
            re.sub(r"size= *[0-9]+", f"size={length // SECTOR}", line) if re.match(node + r"\s*:", line) else line
            for line in lines
        )
        command = ["sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", "--wipe=never", f"/proc/self/fd/{fd}"]
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, input=wanted + "\n", capture_output=True, text=True, check=False, pass_fds=(fd,)
        )
        if done.returncode:
            raise NotPacked(f"raw image: sfdisk failed: {done.stderr.strip()[-300:]}")

    def _head(self, table: int, write: Callable[[bytes], object]) -> None:
        """Everything before the root file system: the new table, then boot loaders and small partitions as they are."""
        first = min(one.start for one in self._disk.partitions)
        write(os.pread(table, first, 0))
        with open(self._disk.path, "rb") as source:
            source.seek(first)
            left = self._root.start - first
            while left:
                piece = source.read(min(_PIECE, left))
                if not piece:
                    raise NotPacked(f"{self._disk.path} ends before its root file system")
                write(piece)
                left -= len(piece)

    def _file_system(self, length: int, write: Callable[[bytes], object]) -> None:
        """The blocks that the file system uses; what was deleted in it is zeros."""
        command = ["e2image", "-ra", self._root.node, "-"]
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(  # pylint: disable=ansible-bad-function
                command, stdout=subprocess.PIPE, stderr=said
            ) as reader:
                if reader.stdout is None:
                    raise AssertionError("it is a pipe")
                done = 0
                while True:
                    piece = reader.stdout.read(min(_PIECE, length - done)) if done < length else b""
                    if not piece:
                        break
                    write(piece)
                    done += len(piece)
                reader.stdout.close()
                code = reader.wait()
            said.seek(0)
            complaint = said.read().decode("utf-8", "replace").strip()[-300:]
        if code and done < length:
            raise NotPacked(f"raw image: e2image failed (exit code {code}): {complaint}")
        while done < length:
            piece = bytes(min(_PIECE, length - done))
            write(piece)
            done += len(piece)
