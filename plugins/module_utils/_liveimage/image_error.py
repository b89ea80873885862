# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What is wrong with an image or with what it shall be made of."""

from __future__ import annotations


class ImageError(ValueError):
    """Input that no image can be made of; the text names the field, the value and the fix."""
