# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the tools of the rescue, and waits for the kernel."""

from __future__ import annotations

import subprocess
import time

from commands.parts.errors import Refused


def run(*command: str, accept: tuple = (0,), stdin: str = "") -> str:
    """Run a tool of the rescue; return its stdout, refuse when its exit code is not expected."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except FileNotFoundError:
        raise Refused("%s is missing in this rescue" % command[0]) from None
    if done.returncode not in accept:
        text = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise Refused("%s ended with exit code %d: %s" % (" ".join(command), done.returncode, "; ".join(text)))
    return done.stdout


def patience(seconds: float = 300):
    """Yield every 0.2 s until the time is over, which is long: a busy machine is no broken one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.2)
