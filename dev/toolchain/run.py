# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/run: a command in one of this checkout's environments, or a shell's export lines."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil

from . import environments
from .report import say

#: what `--export` prints: enough to work by hand
EXPORTED = ("PATH", "ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH", "VIRTUAL_ENV", "LC_ALL")


def main(arguments: list[str] | None = None) -> int:
    """Replace this process by the command, or print the lines for `eval`."""
    parser = argparse.ArgumentParser(
        prog="dev/run",
        description=__doc__.partition(": ")[2],
        epilog='examples: dev/run ansible-playbook kubenode.provision.hcloud_image_url; eval "$(dev/run --export)"',
    )
    parser.add_argument("-e", "--environment", default="main", choices=list(environments.ENVIRONMENTS))
    parser.add_argument("--export", action="store_true", help="print export lines for a shell")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if bool(command) == chosen.export:
        parser.error("give either a command or --export")
    environment = environments.variables(chosen.environment)
    if chosen.export:
        for name in EXPORTED:
            if name in environment:
                print("export %s=%s" % (name, shlex.quote(environment[name])))
        return 0
    program = shutil.which(command[0], path=environment["PATH"])
    if not program:
        say("command %s is not on PATH of environment %s" % (command[0], chosen.environment))
        return 127
    os.execve(program, command, environment)
