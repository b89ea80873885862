# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups: all processes in one can be frozen or killed at once, also when the lab itself dies."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from lab.errors import LabError

# Waits for the end of its input, which comes when the lab is gone: a killed process closes its pipes, too.
_SCRIPT = 'read -r line; echo 1 >"$0"'


def hierarchy() -> Path:
    """Where the unified (version 2) hierarchy is mounted, beside the old ones on hybrid hosts."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _source, target, kind, *_rest = line.split()
        if kind == "cgroup2":
            return Path(target)
    raise LabError("this host has no cgroup version 2 hierarchy mounted; the lab needs one to end machines as a whole")


class CGroup:
    """One group below the unified hierarchy."""

    def __init__(self, path: Path) -> None:
        """``path`` is made when it is not there."""
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    @classmethod
    def of_lab(cls, label: str) -> CGroup:
        """The group of a whole lab."""
        return cls(hierarchy() / f"kubenode-lab-{label}")

    def hold(self) -> contextlib.ExitStack:
        """Mark the group as one of a lab that is up, also while no process is in it yet; until this is closed."""
        stack = contextlib.ExitStack()
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(folder, fcntl.LOCK_SH)
                if self.path.exists() and self.path.stat().st_ino == os.fstat(folder).st_ino:
                    stack.callback(os.close, folder)
                    return stack
                os.close(folder)  # it was removed while we waited

    @contextlib.contextmanager
    def unheld(self) -> Iterator[bool]:
        """Whether no lab holds it; none takes it meanwhile."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(folder)

    def child(self, name: str) -> CGroup:
        """A group inside this one."""
        return CGroup(self.path / name)

    def add(self, pid: int) -> None:
        """Put a process in."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """Kill all processes inside at once; none of them runs any further."""
        if self.path.exists():
            (self.path / "cgroup.kill").write_text("1")

    def freeze(self, limit: float = 120) -> None:
        """Stop all processes inside at once; returns when they are stopped, or after ``limit`` seconds."""
        (self.path / "cgroup.freeze").write_text("1")
        deadline = time.monotonic() + limit
        while "frozen 1" not in (self.path / "cgroup.events").read_text() and time.monotonic() < deadline:
            time.sleep(0.001)

    @property
    def populated(self) -> bool:
        """Whether any process is inside."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except FileNotFoundError:
            return False

    async def emptied(self, limit: float = 180) -> None:
        """Wait until no process is inside any more."""
        deadline = time.monotonic() + limit
        while self.populated:
            if time.monotonic() > deadline:
                raise LabError(f"processes in {self.path} did not end within {limit:.0f} s of being killed")
            await asyncio.sleep(0.005)

    def remove(self) -> None:
        """Remove the group and the empty groups inside it."""
        for folder, _folders, _files in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


class Watchdog:
    """A process outside the lab that kills the lab's control group when the lab is gone."""

    def __init__(self, cgroup: CGroup) -> None:
        """Watch from now on."""
        self._process = subprocess.Popen(
            ["sh", "-c", _SCRIPT, str(cgroup.path / "cgroup.kill")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C or a kill of the lab's process group must not reach it
        )

    def close(self) -> None:
        """Stop watching; the control group has been removed."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
