# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The system on a disk: its root file system found and mounted read-only, where no other program sees it."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence

from ..._common.mounts import private_mounts
from ..._common.text import json_object, whole_number
from ..disks.disk_tools import Tools
from .errors import NotPacked
from .root import Root

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
