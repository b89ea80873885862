# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recipe by which a minimal ISO is made of the full one, written as coreos-installer writes it.

It is bincode with variable-length integers: magic, version, who made it, a table of the runs that both images share
(sector in the minimal one, sector in the full one, bytes), the digest of the minimal image, and the packed rest of it.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lab.images import ImageError

SECTOR = 2048
RESERVED = 16 * 1024  # bytes of the file in the full image
_MADE_BY = b"0.20.0"
_LINE = re.compile(r"File data lba:\s+[0-9]+ ,\s+([0-9]+) ,\s+[0-9]+ ,\s+([0-9]+) , '(.*)'\Z")


def recipe(full: Path, small: Path) -> bytes:
    """The recipe; files of one name and content are shared, everything else is the rest."""
    whole, wanted = full.read_bytes(), small.read_bytes()
    here, there = extents(full), extents(small)
    table, rest, at = [], b"", 0
    for name, (sector, length) in sorted(there.items(), key=lambda item: item[1]):
        begin, source = sector * SECTOR, here.get(name, (0, 0))[0] * SECTOR
        if not source or begin < at or whole[source : source + length] != wanted[begin : begin + length]:
            continue
        table.append((sector, source // SECTOR, length))
        rest += wanted[at:begin]
        at = begin + length
    rest += wanted[at:]
    return encode(table, hashlib.sha256(wanted).digest(), rest)


def encode(table: list[tuple[int, int, int]], digest: bytes, rest: bytes) -> bytes:
    """The recipe as bytes; it must fit into the space that the full image keeps for it."""
    packed = lzma.compress(rest, lzma.FORMAT_XZ, lzma.CHECK_CRC32, preset=9)
    found = b"MINISO\0\0" + _number(1) + _number(len(_MADE_BY)) + _MADE_BY + _number(len(table))
    found += b"".join(_number(value) for entry in table for value in entry)
    found += digest + _number(len(packed)) + packed
    if len(found) > RESERVED:
        raise ImageError(f"the recipe of the minimal ISO has {len(found)} bytes, {RESERVED} is the most")
    return found


def extents(iso: Path) -> Mapping[str, tuple[int, int]]:
    """Every file with content of an ISO: its first sector and its length, as xorriso reads them."""
    command = ["xorriso", "-indev", str(iso), "-find", "/", "-type", "f", "-exec", "report_lba"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [match.groups() for match in map(_LINE.match, told.splitlines()) if match]
    return {name: (int(sector), int(length)) for sector, length, name in found if int(length)}


def _number(value: int) -> bytes:
    for limit, mark, size in ((251, b"", 1), (1 << 16, b"\xfb", 2), (1 << 32, b"\xfc", 4), (1 << 64, b"\xfd", 8)):
        if value < limit:
            return mark + value.to_bytes(size, "little")
    raise ImageError(f"{value} does not fit into 8 bytes")
