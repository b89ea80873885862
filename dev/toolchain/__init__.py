# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool chain behind dev/setup, dev/run and dev/lint (Python 3.9, standard library only)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class SetupError(Exception):
    """Something is missing that this machine or its user must provide; the message says what and how."""


def say(line: str) -> None:
    """One line of progress; on stderr, so that the output of commands stays clean."""
    print("setup: " + line, file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what begins, and afterwards how long it took."""
    say(what + " …")
    start = time.monotonic()
    yield
    say(f"{what}: done in {time.monotonic() - start:.0f} s")


def output_of(
    command: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    text: str = "",
    hint: str = "",
) -> str:
    """What a program prints that is given a text; SetupError with the end of it, and a hint, when it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said = done.stdout.decode(errors="replace")
    if done.returncode:
        raise SetupError("\n".join(filter(None, [" ".join(command) + " failed:", said.strip()[-3000:], hint])))
    return said
