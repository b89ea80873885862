# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The texts of others: a line to print, a number, JSON or base64. A bad text is a value, never another exception.

`str.isdigit` takes "²", which int() refuses. int() takes "٣", "1_000", " 12" and "+5", which other programs refuse,
and raises ValueError for thousands of digits. json.loads raises RecursionError for thousands of brackets. b64decode
raises binascii.Error for some texts and another ValueError for those with a character that is not ASCII.
"""

from __future__ import annotations

import base64
import json
from typing import Any

#: what an offset in a file, a time or a counter may be
LARGEST_NUMBER = (1 << 63) - 1
_MOST_DIGITS = len(str(LARGEST_NUMBER))


def escaped(text: str) -> str:
    """One line of printable text: every other character as its escape, such as ``\\n`` and ``\\x1b``."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def is_digits(text: object) -> bool:
    """Whether it is a str or bytes of ASCII digits, at least one, and nothing else."""
    return isinstance(text, (str, bytes)) and text.isascii() and text.isdigit()


def whole_number(text: object, limit: int = LARGEST_NUMBER) -> int | None:
    """The number in a str or bytes of at most 19 ASCII digits; None for all else, and above the limit."""
    if not isinstance(text, (str, bytes)) or not is_digits(text) or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= limit else None


def json_value(text: str | bytes) -> Any:
    """What a JSON text says. Raises ValueError, and nothing else, for a text that is none or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def json_object(text: str | bytes | None) -> dict[str, Any] | None:
    """The object in a JSON text; None for all else."""
    try:
        found = json_value(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def base64_bytes(text: str | bytes) -> bytes | None:
    """The bytes that a base64 text stands for; None for a text with any other character in it."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        return None
