# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a word of an installimage configuration may be (pure)."""

from __future__ import annotations

import json
import re

#: installimage splits its configuration at white space and hands words to shells: nothing that either would notice.
_WORD = re.compile(r"[A-Za-z0-9@%+=:,./_~-]+\Z")
#: A passphrase may hold more, as it is read as one word and never evaluated; quotes and backslashes are not worth it.
_PASSPHRASE = re.compile(r"[A-Za-z0-9!#$%&()*+,./:;<=>?@^_{|}~\[\]-]+\Z")
#: installimage asks at the terminal when its configuration holds this, and no person is there to answer.
PROMPT = "PASSWD"

#: The units are installimage's, in its case of letters. It takes a bare number for MiB, which few who write 40 mean.
_SIZE = re.compile(r"(0|[1-9][0-9]{0,11})([MGT])(?:iB)?\Z")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}
ALL = "all"


def shown(value: object) -> str:
    """A value in a message: short, on one line, harmless, in the letters in which the user wrote it."""
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)
    return text if len(text) <= 120 else text[:117] + "..."


def check_word(field: str, value: str) -> list[str]:
    """Findings about a text that becomes one word of the configuration."""
    if PROMPT in value:
        return [
            (
                f"{field} {shown(value)}: it holds {PROMPT!r}, at which installimage would ask a question; use "
                "another value"
            )
        ]
    if not value:
        return [f"{field}: it is empty; give one word, or leave it out"]
    if not _WORD.match(value):
        return [
            (
                f"{field} {shown(value)}: only letters, digits and @%+=:,./_~- are taken (no spaces, quotes or line "
                "breaks); "
                "use a value without them"
            )
        ]
    return []


def check_passphrase(field: str, value: str) -> list[str]:
    """Findings about a passphrase, which is never shown."""
    if len(value) < 8:
        return [f"{field}: it has {len(value)} characters; use at least 8"]
    if PROMPT in value or not _PASSPHRASE.match(value):
        return [
            (
                f"{field}: it holds a space, a quote, a backslash, a line break, a character that is not ASCII, or "
                f"{PROMPT!r}; "
                "use a passphrase without them"
            )
        ]
    return []


def mebibytes(size: str) -> int | None:
    """``512M``, ``512MiB``, ``40G`` or ``2T`` in MiB; None when it is none of them (also for ``all``)."""
    match = _SIZE.match(size)
    return int(match.group(1)) * _MIB[match.group(2)] if match else None


def check_size(field: str, size: str, all_allowed: bool = True) -> list[str]:
    """Findings about a size."""
    if size == ALL and all_allowed:
        return []
    if not mebibytes(size):
        more = ", or all for the rest of the disk" if all_allowed else ""
        return [f"{field} {shown(size)}: give a number with M, G or T, such as 512M or 40G{more}"]
    return []
