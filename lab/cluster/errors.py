# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be wrong with the control plane of a lab."""

from __future__ import annotations

from lab.machines.host import LabError


class ClusterError(LabError):
    """The control plane could not be built, started or asked; the message says what to do."""


class Unavailable(ClusterError):
    """What a test needs can be had in no way on this machine; the message is one line."""
