# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program `provision`: base and join on the machine it runs on, without anything installed there.

Here: how it ends, by which exit codes and with which two kinds of errors.
"""

from __future__ import annotations

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """What was asked for makes no sense; trying again will not help. The text names option, value and fix."""


class RunError(Exception):
    """This run failed, another one may succeed."""
