# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror's parts that other parts of the lab build: kubelets, crictl and the images of pods."""

from __future__ import annotations

from pathlib import Path

from .upstream import Part


def parts(*_names: str) -> list[Part]:
    """These parts, all when none is named."""
    return []


def find(_path: str) -> Path | None:
    """The file at this path below the mirror's root."""
    return None
