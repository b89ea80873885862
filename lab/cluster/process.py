# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One program of a control plane: started, watched, killed, and gone when the lab is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import ClusterError

Adopt = Callable[[int], None]


class Process:
    """A program that works in ``folder`` and writes NAME.log there."""

    def __init__(self, name: str, folder: Path, adopt: Adopt) -> None:
        """``adopt`` is told the process id, to put the process among those of the lab."""
        self.name = name
        self._folder = folder
        self._adopt = adopt
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, command: Sequence[str]) -> None:
        """Start it, unless it runs."""
        if self.running:
            return
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                "setpriv", "--pdeathsig", "KILL", "--", *command, cwd=self._folder,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._adopt(self._process.pid)

    def check(self) -> None:
        """Raise ClusterError with its last lines when it has ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            lines = (self._folder / f"{self.name}.log").read_text(errors="replace").splitlines()[-10:]
            raise ClusterError(f"{self.name} ended with code {self._process.returncode}:\n" + "\n".join(lines))

    async def kill(self) -> None:
        """End it without giving it time to say goodbye, as when its host dies."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process = None
