# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers in what clients send: ASCII digits or nothing."""

from __future__ import annotations

#: what the real API's numbers may be
LARGEST = (1 << 63) - 1


def whole_number(text: str, limit: int = LARGEST) -> int | None:
    """The number in a text of at most 19 ASCII digits; nothing for all else, and above the limit."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(LARGEST)):
        return None
    number = int(text)
    return number if number <= limit else None
