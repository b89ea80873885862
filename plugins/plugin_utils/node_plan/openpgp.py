# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fingerprint of an ASCII-armoured OpenPGP key (RFC 4880, RFC 9580), so that a repository's key can be pinned."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

_ARMOUR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\n(?:[^\n:]+:[^\n]*\n)*[ \t]*\n"
    r"([A-Za-z0-9+/=\s]+?)(?:\n=[A-Za-z0-9+/]{4})?\s*"
    r"-----END PGP PUBLIC KEY BLOCK-----\s*\Z"
)
_PUBLIC_KEY, _SECRET_KEY, _SECRET_SUBKEY = 6, 5, 7


def fingerprint(text: str) -> str:
    """Fingerprint of the one primary key, upper-case hexadecimal. ValueError for none, a second or a secret one.

    A package manager trusts every primary key in the file, so the file may hold only one.
    """
    match = _ARMOUR.match(text.replace("\r\n", "\n").lstrip())
    if not match:
        raise ValueError("use one whole -----BEGIN PGP PUBLIC KEY BLOCK-----")
    try:
        data = base64.b64decode("".join(match.group(1).split()), validate=True)
        packets = list(_packets(data))
    except (ValueError, IndexError):
        raise ValueError("the key is damaged; fetch it once more") from None
    if any(tag in (_SECRET_KEY, _SECRET_SUBKEY) for tag, _body in packets):
        raise ValueError("this holds a secret key; give the public key only")
    primary = [body for tag, body in packets if tag == _PUBLIC_KEY]
    if len(primary) != 1 or packets[0][0] != _PUBLIC_KEY:
        raise ValueError("the block holds %d keys; give one key only" % len(primary))
    return _digest(primary[0])


def _digest(body: bytes) -> str:
    if body[:1] == b"\x04":
        framed = b"\x99" + len(body).to_bytes(2, "big") + body
        return hashlib.sha1(framed).hexdigest().upper()
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise ValueError("the key is of a version that is not known; versions 4 and 6 are")


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, body) of each packet; IndexError when the data ends early."""
    place = 0
    while place < len(data):
        first = data[place]
        if not first & 0x80:
            raise IndexError("no packet")
        if first & 0x40:
            tag, (length, size) = first & 0x3F, _new_length(data, place + 1)
        else:
            tag, (length, size) = (first >> 2) & 0x0F, _old_length(data, place + 1, first & 3)
        start = place + 1 + size
        if start + length > len(data):
            raise IndexError("cut off")
        yield tag, data[start : start + length]
        place = start + length


def _new_length(data: bytes, place: int) -> tuple[int, int]:
    first = data[place]
    if first < 192:
        return first, 1
    if first < 224:
        return ((first - 192) << 8) + data[place + 1] + 192, 2
    if first == 255:
        return int.from_bytes(data[place + 1 : place + 5], "big"), 5
    raise IndexError("partial lengths are for data, not for keys")


def _old_length(data: bytes, place: int, kind: int) -> tuple[int, int]:
    if kind == 3:
        raise IndexError("a packet without a length")
    size = 1 << kind
    data[place + size - 1]
    return int.from_bytes(data[place : place + size], "big"), size
