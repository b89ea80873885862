# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What speaks against an archive."""

from __future__ import annotations

from ..._common.text import escaped


class NotPacked(Exception):
    """No archive was made; the text says why, and what helps."""


def shown(name: bytes) -> str:
    """A file name (bytes) as text that is safe to print, at most 200 characters of it."""
    return escaped(name.decode("utf-8", "backslashreplace"))[:200]
