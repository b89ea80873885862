# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own errors. What the emulated APIs answer is in `api.api_errors` and `robot.robot_http`."""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot do what was asked; the message names what failed and the way out."""


class ImageError(Exception):
    """An image cannot be made or fetched; the message names the reason and the fix."""


class ClusterError(LabError):
    """The control plane could not be built, started or asked; the message says what to do."""


class Unavailable(ClusterError):
    """This machine cannot provide what a test needs; the message is one line."""
