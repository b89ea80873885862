# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own errors. What the emulated APIs answer is in `api.schemas` and `robot.robot_http`."""

from __future__ import annotations

import sys
from pathlib import Path


def _program() -> str:
    in_checkout = (Path(__file__).parents[1] / "dev" / "run").exists()
    return "dev/run python -m lab" if in_checkout and Path(sys.argv[0]).name != "hetzner-lab" else "hetzner-lab"


#: What a person types, for messages: in a checkout its environment is needed, pip installs a program.
PROGRAM = _program()


class LabError(Exception):
    """The lab cannot do what was asked; the message names what failed and the way out."""


class ImageError(Exception):
    """An image cannot be made or fetched; the message names the reason and the fix."""


class ClusterError(LabError):
    """The control plane could not be built, started or asked; the message says what to do."""


class Unavailable(ClusterError):
    """This machine cannot provide what a test needs; the message is one line."""
