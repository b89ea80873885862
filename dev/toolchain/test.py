# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/test: pytest on one ansible-core; its own summary is the last line."""

from __future__ import annotations

import argparse
import os
import signal

from . import environments
from .paths import CHECKOUT
from .report import SetupError, say
from .variables import variables

#: what is run, by scope; a worker takes whole files, since the tests of a file share a lab, and is one more than the
#: cores of the smallest machine, since many of these tests wait
SCOPES = {
    "unit": ["-q", "-n", "2", "tests/unit"],
    "all": [
        "-n",
        "3",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "--durations",
        "40",
        "tests/unit",
        "tests/lab",
        "tests/integration",
    ],
}

#: tests that no ansible-core takes part in: once is enough
ONCE = ["tests/unit/liveimage/fuzz", "tests/unit/commands"]


def main(arguments: list[str] | None = None) -> int:
    """Replace this process by pytest."""
    parser = argparse.ArgumentParser(prog="dev/test", description=__doc__.partition(": ")[2])
    parser.add_argument("scope", choices=sorted(SCOPES))
    parser.add_argument("core", choices=sorted(environments.CORES), help="version of ansible-core")
    parser.add_argument("pytest", nargs=argparse.REMAINDER, help="further arguments for pytest")
    chosen = parser.parse_args(arguments)
    name = environments.CORES[chosen.core]
    try:
        environment = variables(name)
    except SetupError as error:
        say("failed: %s" % error)
        return 1
    os.chdir(CHECKOUT)
    python = environments.ENVIRONMENTS[name].folder / "bin" / "python"
    print("== %s tests on ansible-core %s" % (chosen.scope, chosen.core), flush=True)
    # started in the background of a shell we ignore Ctrl-C, and so would every program that a test interrupts
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    left_out = [] if name == "main" else ["--ignore=" + folder for folder in ONCE]
    command = [str(python), "-m", "pytest", *SCOPES[chosen.scope], *left_out, *chosen.pytest]
    os.execve(python, command, environment)


if __name__ == "__main__":
    raise SystemExit(main())
