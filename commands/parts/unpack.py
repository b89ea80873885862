# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpacks archives in a process of its own, which has no other files in sight than those of the new system."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from pathlib import Path

from commands.parts.chroot import collect, enclose
from commands.parts.extract import extract
from commands.parts.sizes import MIB


class Unpacker:
    """A process that waits to unpack one archive; started before there are threads, which do not survive a fork."""

    def __init__(self, mounts: list, layered: bool):
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

    def unpack(self, top: Path, pieces) -> dict:
        """Unpack the archive into a mounted root; return what it held, see Survey.told()."""
        with os.fdopen(self.feed, "wb", buffering=0) as pipe:
            self.feed = -1
            with contextlib.suppress(BrokenPipeError):  # its answer tells why
                pipe.write(os.fsencode(str(top)) + b"\n")
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[pipe.write(view) :]
        child, self.child = self.child, 0
        return collect(child, self.answer)

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.feed >= 0:
            os.close(self.feed)
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.child = 0
