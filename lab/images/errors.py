# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one error that building and finding images raises."""

from __future__ import annotations


class ImageError(Exception):
    """An image cannot be had; the message names the reason and the fix."""
