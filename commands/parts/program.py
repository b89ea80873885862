# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a command is started and how it ends: signals, exit code, marker, and what became of the disk."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from commands.parts.disk import Disk
from commands.parts.errors import Refused, Terminated
from commands.parts.mounts import workplace
from commands.parts.progress import Progress

MARKER = "IMAGE_URL_DONE"
TOKEN = "OCI_REGISTRY_AUTH_TOKEN"  # the name of a variable, not a secret


def run_program(name: str, install, arguments: list) -> int:
    """Run install(image URL, bootstrap file, machine, devices, progress, token); return the exit code.

    The marker is printed only when everything is done. The registry token leaves the environment first, so that no
    tool that is started has it.
    """
    token = os.environ.pop(TOKEN, "")
    if len(arguments) != 4:
        sys.stderr.write('usage: %s IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE"\n' % name)
        return 2

    def end(number: int, _frame) -> None:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # cleaning up must not be cut short
        raise Terminated(number)

    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in caught:
        signal.signal(number, end)
    progress = Progress(Path(arguments[1]).with_name("output.json"))
    try:
        install(*arguments, progress, token)
    except (Refused, Terminated, OSError) as error:
        progress.publish("failed: %s" % error)
        sys.stderr.write("%s: %s; %s\n" % (name, error, progress.outcome))
        return 128 + error.number if isinstance(error, Terminated) else 1
    sys.stdout.write(MARKER + "\n")
    return 0


@contextlib.contextmanager
def writing(disk: Disk, progress: Progress):
    """Hold the disk and give a private folder; a disk that was written does not boot when the work fails."""
    try:
        with disk.locked(), workplace() as work:
            yield work
    except BaseException:
        if disk.touched:
            disk.spoil()
            progress.outcome = "%s was made unbootable again" % disk.path
        raise
