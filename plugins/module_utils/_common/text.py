# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The texts of others: a line to print, a number, JSON, base64, a time. A bad text is a value, never another exception.

`str.isdigit` takes "²", which int() refuses. int() takes "٣", "1_000", " 12" and "+5", which other programs refuse,
and raises ValueError for thousands of digits. json.loads raises RecursionError for thousands of brackets. b64decode
raises binascii.Error for some texts and another ValueError for those with a character that is not ASCII.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

#: what an offset in a file, a time or a counter may be
LARGEST_NUMBER = (1 << 63) - 1
_MOST_DIGITS = len(str(LARGEST_NUMBER))
#: What moves a cursor, changes a colour or turns the writing direction.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL_OR_TAB = re.compile(_CONTROL.pattern.replace("\\x08", "\\x09"))
_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_ASCII_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOT_VISIBLE_ASCII = re.compile(r"[^\x21-\x7e]+")


def shortened(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters, an ellipsis at its end where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def escaped(text: str) -> str:
    """One line of printable text: every other character as its escape, such as ``\\n`` and ``\\x1b``."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def printable(text: str, limit: int = 2000) -> str:
    """``text`` with control characters shown as escapes instead of obeyed, cut to ``limit`` characters."""
    shown = _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)
    return shortened(shown, limit)


def one_line(text: str, limit: int = 400) -> str:
    """``text`` on one line, fit for a message."""
    return printable(" ".join(text.split()), limit)


def spaced(text: object, limit: int = 400) -> str:
    """One line for a report: control characters become spaces; cut to ``limit`` characters."""
    return shortened(_BREAKING.sub(" ", str(text)).strip(), limit)


def counted(number: int, noun: str) -> str:
    """``1 machine``, ``2 machines``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def spaced_lines(text: str) -> str:
    """``text`` for a page: control characters become spaces, but for the ends of its lines."""
    return _CONTROL_OR_TAB.sub(" ", text)


def printable_words(text: object) -> str:
    """The words of a text on one line: one blank for all that is not printable, and between two words."""
    return " ".join("".join(one if one.isprintable() else " " for one in str(text)).split())


def ascii_words(text: str) -> str:
    """The same in visible ASCII alone, cut to 200 characters: for what a machine says of itself."""
    return _NOT_VISIBLE_ASCII.sub(" ", text).strip()[:200]


def has_control(text: str) -> bool:
    """Whether there is a control character of ASCII in it, such as a line break."""
    return _ASCII_CONTROL.search(text) is not None


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names for a message: the first ``most`` of them, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines with aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def metric_labels(labels: Mapping[str, str]) -> str:
    """The labels of a sample in the text format of Prometheus; empty without any."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    pairs = ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


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


def json_objects(text: str | bytes | None) -> list[dict[str, Any]]:
    """The objects in a JSON list; none for all else."""
    try:
        found = json_value(text or "[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def base64_bytes(text: str | bytes) -> bytes | None:
    """The bytes of a base64 text; None for a text with any other character in it."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        return None


_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)


def to_rfc3339(epoch: float) -> str:
    """Epoch seconds to an RFC 3339 UTC string with milliseconds."""
    moment = datetime.fromtimestamp(epoch, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def to_whole_seconds(epoch: float) -> str:
    """The same without a fraction, as the API of Kubernetes and records of ours write it."""
    return datetime.fromtimestamp(int(epoch), tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_rfc3339(text: object) -> float:
    """RFC 3339 string (``Z`` or offset) to epoch seconds; raises ValueError on anything else."""
    # What fromisoformat takes differs from one Python to the next, and is more than RFC 3339.
    match = _RFC3339.match(text) if isinstance(text, str) else None
    if not match:
        raise ValueError(f"{text!r:.100} is no time with a time zone, such as 2026-01-31T12:00:00Z")
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in ("Z", "z") else zone
    return datetime.fromisoformat(f"{day}T{clock}.{(fraction or '').ljust(6, '0')[:6]}{zone}").timestamp()


def moment(text: object) -> float | None:
    """The same; None for what is no such time."""
    try:
        return from_rfc3339(text)
    except ValueError:
        return None
