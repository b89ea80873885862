# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Runs installimage: no terminal, no questions, a limit on its time; what it prints is passed on as lines."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable

from . import post_install, verdict
from .autosetup import MASK
from .processes import ABSENT, kill_group

#: What is kept of its output for the verdict.
MOST = 1024 * 1024
#: How long children that outlive installimage may hold its output open.
LINGER = 2.0


class Terminal:
    """What installimage prints, cut into lines; reports every new step. ``secret``: masked in all of them."""

    def __init__(self, say: Callable[[str], None], progress: Callable[[str], None], secret: str = "") -> None:
        self._say, self._progress, self._secret = say, progress, secret
        self._rest, self._shown = b"", ""
        self._kept: list[str] = []
        self._size = 0
        self.steps = verdict.Steps()

    def take(self, data: bytes) -> None:
        """Take bytes as they come."""
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line(line)
        # A step shows before its line ends: "3/15 : text ... busy".
        if len(self._rest) > 65536:
            self._line(self._rest)
            self._rest = b""
        elif self._rest:
            self._step(self._rest.decode("utf-8", "replace"))

    def end(self) -> None:
        """Nothing comes any more."""
        self._line(self._rest)
        self._rest = b""

    @property
    def text(self) -> str:
        """What was printed, its beginning cut off when it was too much."""
        return "\n".join(self._kept)

    def _line(self, raw: bytes) -> None:
        line = verdict.plain(raw.decode("utf-8", "replace")).rstrip()
        if self._secret:
            line = line.replace(self._secret, MASK)
        self._step(line)
        if line.strip() and line != self._shown and post_install.TAG not in line:
            self._shown = line
            self._say(line)
        self._kept.append(line)
        self._size += len(line) + 1
        while self._size > MOST and len(self._kept) > 1:
            self._size -= len(self._kept.pop(0)) + 1

    def _step(self, line: str) -> None:
        message = self.steps.take(line)
        if message:
            self._progress(message)


class Installer:
    """One run of installimage."""

    def __init__(self, command: str, config: str, hook: str, terminal: Terminal) -> None:
        self._argv = [command, "-a", "-c", config, "-x", hook]
        self.terminal = terminal
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> int | None:
        """Run until it ends or ``deadline``; returns the exit code, None when it was killed."""
        environment = dict(os.environ, TERM="xterm", LC_ALL="C")
        # It reads the answer to its countdown from a pipe, and gets no further answer.
        try:
            self._process = process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self.terminal.take((f"{self._argv[0]}: {error}\n").encode())
            self.terminal.end()
            return ABSENT
        if process.stdin is None:
            raise AssertionError("it is a pipe")
        try:
            process.stdin.write(b"x\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended without reading
        ended = self._follow(process, deadline, clock)
        self.terminal.end()
        if not ended:
            self.kill()
            return None
        code = process.returncode
        # A child may have been left behind that still holds the target.
        kill_group(process.pid)
        return code if code >= 0 else 128 - code

    def _follow(self, process: subprocess.Popen[bytes], deadline: float, clock: Callable[[], float]) -> bool:
        if process.stdout is None:
            raise AssertionError("it is a pipe")
        output = process.stdout.fileno()
        last: float | None = None
        while clock() < deadline and (last is None or clock() < last):
            if select.select([output], [], [], 0.5)[0]:
                data = os.read(output, 65536)
                if not data:
                    try:
                        process.wait(max(0.0, deadline - clock()))
                        return True
                    except subprocess.TimeoutExpired:
                        return False
                self.terminal.take(data)
            if last is None and process.poll() is not None:
                last = clock() + LINGER
        return process.poll() is not None

    def kill(self) -> None:
        """End it with everything in its session's process group."""
        if self._process is not None:
            kill_group(self._process.pid)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.kill(self._process.pid, signal.SIGKILL)
