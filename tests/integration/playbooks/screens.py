# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run in a terminal, and what stood on its screen: as much of a terminal as our tables and Ansible's lines need."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_WORDS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


class Screen:
    """Lines of text and a cursor; ``unknown`` are the sequences that it does not know."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.unknown: list[str] = []

    def feed(self, text: str) -> None:
        for word in _WORDS.finditer(text):
            self._take(word)

    def _take(self, word: re.Match[str]) -> None:
        text, number, kind = word[0], word[1], word[2]
        if text == "\r":
            self.column = 0
        elif text == "\n":
            self.row += 1
        elif kind is None:
            self._write(text)
        elif kind == "A":
            top = max(0, len(self.lines) - self.height)
            assert self.row - int(number or 1) >= top, "the cursor goes above the screen"
            self.row -= int(number or 1)
        elif kind == "J" and number in ("", "0"):
            self.lines[self.row] = self.lines[self.row][: self.column]
            del self.lines[self.row + 1 :]
        elif kind != "m":
            self.unknown.append(text)
        while len(self.lines) <= self.row:
            self.lines.append("")

    def _write(self, text: str) -> None:
        for one in text:
            if self.column == self.width:
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + one + line[self.column + 1 :]
            self.column += 1

    @property
    def visible(self) -> list[str]:
        """The lines that are not scrolled away."""
        return self.lines[-self.height :]


class OnTerminal:
    """A command whose streams are a terminal."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, size: tuple[int, int] = (100, 24)
    ) -> None:
        """``size``: columns and lines."""
        self.screen, self.output = Screen(*size), ""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        given = {name: value for name, value in environment.items() if name not in ("CI", "AWX_ISOLATED_DATA_DIR")}
        self.process = subprocess.Popen(
            command, cwd=folder, env={**given, "TERM": "xterm"}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.before = termios.tcgetattr(slave)
        self.slave = slave

    def read(self, until: Callable[[Screen], bool] | None = None, limit: float = 300) -> bool:
        """Follow the screen until it shows a text, or the run ends; whether it was shown."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            ready = select.select([self.master], [], [], 0.2)[0]
            if ready:
                text = os.read(self.master, 65536).decode("utf-8", "replace")
                self.output += text
                # piece by piece: what one read brings may be several tables
                for piece in re.split(r"(?=\x1b\[\d+A)", text):
                    self.screen.feed(piece)
                    if until is not None and until(self.screen):
                        return True
            elif self.process.poll() is not None:
                return False
        raise AssertionError(f"the run does not end\n{self.output}")

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def end(self) -> None:
        """Close the terminal; what still runs is killed."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)
