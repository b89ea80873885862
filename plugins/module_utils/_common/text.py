# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Numbers in the texts of others: ASCII digits or nothing.

`str.isdigit` takes "²", which int() refuses. int() takes "٣", "1_000", " 12" and "+5", which other programs refuse,
and raises ValueError for thousands of digits.
"""

from __future__ import annotations

#: what an offset in a file, a time or a counter may be
LARGEST_NUMBER = (1 << 63) - 1
_MOST_DIGITS = len(str(LARGEST_NUMBER))


def is_digits(text: object) -> bool:
    """Whether it is a str or bytes of ASCII digits, at least one, and nothing else."""
    return isinstance(text, (str, bytes)) and text.isascii() and text.isdigit()


def whole_number(text: object, limit: int = LARGEST_NUMBER) -> int | None:
    """The number in a str or bytes of at most 19 ASCII digits; None for all else, and above the limit."""
    if not isinstance(text, (str, bytes)) or not is_digits(text) or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= limit else None
