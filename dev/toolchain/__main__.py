# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m dev.toolchain COMMAND …``: what dev/COMMAND runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from . import SetupError, say

#: command → its function in a module beside this one; else it is `main` of the module of its name
COMMANDS = {
    "bench": "test.bench",
    "fuzz": "test.fuzz",
    "image-commands": "release.image_commands",
    "image-server": "release.image_server",
    "lock": "environments.lock",
    "provision": "release.provision",
    "run": "environments.run",
    "setup": "environments.setup",
}


def main(command: str, *arguments: str) -> int:
    """The exit code of a command; what this machine lacks is said in one line."""
    try:
        code: int = function_of(command)(list(arguments))
    except SetupError as error:
        say(f"failed: {error}")
        return 1
    return code


def function_of(command: str) -> Callable[[list[str]], int]:
    module, _dot, name = COMMANDS.get(command, command + ".main").partition(".")
    found: Callable[[list[str]], int] = getattr(importlib.import_module("." + module, __package__), name)
    return found


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
