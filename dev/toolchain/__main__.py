# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m dev.toolchain COMMAND …``: what dev/COMMAND runs; the module of that name has its `main`."""

from __future__ import annotations

import importlib
import sys

from .report import SetupError, say


def main(command: str, *arguments: str) -> int:
    """The exit code of a command; what this machine lacks is said in one line."""
    try:
        code: int = importlib.import_module("." + command.replace("-", "_"), __package__).main(list(arguments))
    except SetupError as error:
        say("failed: %s" % error)
        return 1
    return code


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
