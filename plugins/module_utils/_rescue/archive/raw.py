# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A disk as a raw image of its own content: the root file system shrunk, what it does not use zeroed.

What of the disk it writes to is given up: the caller's disk is a temporary one. The same disk gives the same bytes.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from ..._common.text import whole_number
from .errors import NotPacked
from .source_disk import Disk, Partition

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
                f"{root.node}; install "
                "the archive by image-url-command-rootfs-tar instead"
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
