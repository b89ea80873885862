# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is seen of an installation: numbered steps on the terminal, everything else in /root/debug.txt."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

DEBUG = Path("/root/debug.txt")
_COLUMN = "\033[60G"
_RED, _GREEN, _YELLOW, _CYAN, _PLAIN = "\033[1;31m", "\033[1;32m", "\033[1;33m", "\033[1;36m", "\033[0m"


class Failed(Exception):
    """A step did not succeed; what is known about it is in the debug log already."""


def say(text: str = "") -> None:
    """A line on the terminal."""
    print(text, flush=True)


def interrupt_line(text: str) -> None:
    """Print what a program says, in the middle of the line of a step."""
    print(text, flush=True)


def give_up() -> None:
    """Print what follows a failed step."""
    say(f"\n{_RED}         An error occured while installing the new system!{_PLAIN}")
    say(f"{_RED}          See the debug file {DEBUG} for details.{_PLAIN}")
    say("\nPlease check our wiki for a description of the error:\n")
    say("https://docs.hetzner.com/robot/dedicated-server/operating-systems/installimage/\n")
    say("If your problem is not described there, try booting into a fresh")
    say("rescue system and restart the installation. If the installation")
    say("fails again, please contact our support via Hetzner Robot, providing")
    say("the IP address of the server and a copy of the debug file.\n")
    say("  https://robot.hetzner.com/\n")


def debug(text: str) -> None:
    """Write to the debug log what installimage itself says."""
    _log(f"{line}\n" for line in text.split("\n"))


def quote(text: str) -> None:
    """Write to the debug log what others said: output of commands, and validation errors."""
    _log(f":   {line.strip()}\n" for line in text.split("\n"))


def _log(lines: Iterable[str]) -> None:
    now = time.strftime("[%H:%M:%S]")
    with DEBUG.open("a") as file:
        file.writelines(f"{now} {line}" for line in lines)


def begin() -> None:
    """Forget the last run."""
    DEBUG.parent.mkdir(parents=True, exist_ok=True)
    DEBUG.write_text("\n")
    DEBUG.chmod(0o640)


class Steps:
    """The numbered steps of one installation."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.current = 0

    def step(self, text: str) -> Step:
        """The next numbered step, to be used as a context."""
        self.current += 1
        return Step(f"  {self.current:2}/{self.total}  :  {text}", f"# {text}")

    def title(self, text: str) -> None:
        """A numbered step that consists of others."""
        self.current += 1
        debug(f"# {text}")
        say(f"  {self.current:2}/{self.total}  :  {text}")

    def part(self, text: str) -> Step:
        """A part of a numbered step."""
        return Step(f"         :    {text}", f"# {text}")

    def aside(self, text: str, note: str = "") -> Step:
        """A step without a number, with another note in the debug log, or none."""
        return Step(f"         :  {text}", note)


class Step:
    """busy → done, failed or warn."""

    def __init__(self, line: str, note: str) -> None:
        self._line = line
        self._note = note
        self._warning = ""

    def warn(self, text: str) -> None:
        """End this step with a warning instead of "done"."""
        self._warning = text

    def __enter__(self) -> Step:
        if self._note:
            debug(self._note)
        sys.stdout.write(f"{self._line} {_COLUMN}{_CYAN} busy {_PLAIN}")
        sys.stdout.flush()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            say(f"{_COLUMN}{_RED}failed{_PLAIN}")
            debug("=> FAILED")
        elif self._warning:
            say(f"{_COLUMN}{_YELLOW} warn")
            say(f"         :  {self._warning}{_PLAIN}")
            debug(self._warning)
        else:
            say(f"{_COLUMN}{_GREEN} done {_PLAIN}")
