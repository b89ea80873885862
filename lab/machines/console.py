# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console of a machine: a file that is cut at every power on and read back from its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

_TAIL = 64 << 10


class Console:
    """Where a machine prints."""

    def __init__(self, file: Path) -> None:
        """Print into ``file``."""
        self.file = file

    def clear(self) -> None:
        """Begin anew (power on)."""
        self.file.write_bytes(b"")

    def open(self) -> BinaryIO:
        """A handle for a guest to print into."""
        return self.file.open("ab")

    def say(self, line: str) -> None:
        """Print a line of the firmware's own."""
        with self.open() as file:
            file.write(line.encode() + b"\r\n")

    def text(self) -> str:
        """The end of what was printed."""
        try:
            with self.file.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _TAIL))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
