# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that machines sent, made fit for a terminal, a result or a log file (pure)."""

from __future__ import annotations

import re

#: Begins, in the message of a failure, what was printed last; the report has it in fields of its own.
ENDS_WITH = "\nstderr ends with:\n"
#: What moves a cursor, changes a colour or turns the writing direction.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, limit: int = 2000) -> str:
    """``text`` with control characters shown as escapes instead of obeyed, cut to ``limit`` characters."""
    shown = _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def one_line(text: str, limit: int = 400) -> str:
    """``text`` on one line, fit for a message."""
    return printable(" ".join(text.split()), limit)
