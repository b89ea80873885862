# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The same by the program nmstatectl, where it is installed and asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Callable, Sequence, Tuple

from ..errors import ImageError
from .document import Fields, parse

CHOICES = ("auto", "builtin", "nmstatectl")
SECONDS = 60  # for one document; it needs a few milliseconds
COMMAND = ("nmstatectl", "gc", "/dev/stdin")
_DATED = re.compile(r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}")  # a line of its log
_FILE = re.compile(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@ -]{0,200}\.nmconnection\Z")


Run = Callable[[Sequence[str], str], Tuple[int, str, str]]


def chosen(converter: str, which: Callable[[str], str | None] | None = None, run: Run | None = None) -> Run | None:
    """What starts nmstatectl, None when documents are converted here; ``auto``: by it where it is installed."""
    if converter == "builtin":
        return None
    import shutil  # a server that needs it seldom starts without it

    there = (which or shutil.which)(COMMAND[0]) is not None
    if converter == "nmstatectl" and not there:
        raise ImageError("nmstate: nmstatectl is not installed on this machine; install it or use nmstate: builtin")
    return (run or start) if there else None


def start(command: Sequence[str], text: str) -> tuple[int, str, str]:
    """Run a command with a text as its input."""
    import subprocess

    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            list(command), input=text, capture_output=True, encoding="utf-8", errors="replace", check=False,
            timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"{command[0]} did not run to its end: {type(error).__name__}") from error
    return done.returncode, done.stdout, done.stderr


def with_nmstatectl(
    document: Mapping[str, Any], run: Callable[[Sequence[str], str], tuple[int, str, str]]
) -> dict[str, str]:
    """Keyfiles by nmstatectl; ``run(command, stdin)`` gives exit code, stdout and stderr."""
    try:
        text = json.dumps(document, sort_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ImageError(f"the NMState document is no plain data: {ascii(str(error))!s:.100}") from error
    code, out, err = run(COMMAND, text)
    if code != 0:
        raise ImageError("nmstatectl refuses the NMState document: %s" % (_last(err) or f"exit code {code}"))
    made = Fields(parse(out), "nmstatectl's output")
    files: dict[str, str] = {}
    for at, pair in enumerate(made.entries("NetworkManager")):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
            raise ImageError(f"{made.at('NetworkManager')}[{at}] is no pair of file name and text")
        name, content = pair
        if not _FILE.match(name) or name in files:
            raise ImageError(f"{made.at('NetworkManager')}[{at}]: file name {name[:60]!a} cannot be used")
        files[name] = content
    return files


def _last(err: str) -> str:
    """The program's reason: the last lines that are not its own log."""
    lines = [line.strip() for line in err.splitlines() if line.strip() and not _DATED.match(line)]
    return " ".join(lines[-3:])[:500]
