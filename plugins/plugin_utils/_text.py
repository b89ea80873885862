# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that machines sent, made fit for a terminal, a result or a log file (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What moves a cursor, changes a colour or turns the writing direction.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MASK = "********"


def printable(text: str, limit: int = 2000) -> str:
    """``text`` with control characters shown as escapes instead of obeyed, cut to ``limit`` characters."""
    shown = _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def one_line(text: str, limit: int = 400) -> str:
    """``text`` on one line, fit for a message."""
    return printable(" ".join(text.split()), limit)


class Masker:
    """Replaces secrets wherever they stand in text or bytes."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        # Shorter ones would mask ordinary text; longest first, so that no rest of a secret remains.
        found = {secret for secret in secrets if secret and len(secret) >= 4}
        self._secrets = [secret.encode() for secret in sorted(found, key=len, reverse=True)]

    def bytes(self, data: bytes) -> bytes:
        """``data`` with every secret replaced."""
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        return data

    def text(self, text: str) -> str:
        """``text`` with every secret replaced."""
        return self.bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
