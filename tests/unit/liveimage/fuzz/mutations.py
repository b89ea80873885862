# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From good and interesting inputs to damaged ones; the same random source gives the same input."""

from __future__ import annotations

import base64
import json
import random
from functools import cache
from pathlib import Path

from tests.unit.liveimage import maker
from tests.unit.liveimage.fuzz.targets import _made

CORPUS = Path(__file__).with_name("corpus")
_DOCUMENTS = Path(__file__).parents[1] / "nmstate" / "documents"

#: pieces that matter to a parser
WORDS: dict[str, list[bytes]] = {
    "cpio": [
        b"070701", b"070702", b"TRAILER!!!\0", b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"FFFFFFFF", b"-0000001", b"\0" * 4,
    ],
    "descriptor": [
        b"-1", b"1e999", b"NaN", b"true", b"null", b"[]", b"{}", b"[0,1]", b'"AAAA"', b"\\u0000", b"\\ud800", b"9" * 30,
        b'"base"', b'"segments"',
    ],
    "host": [
        b"ignition: ", b"merge: ", b"files: ", b"path: /a", b"name: ", b"mode: 420", b"contents: {source: 'data:,x'}",
        b"data:;base64,", b"compression: gzip", b"[]", b"{}", b"- ", b"null", b"1e3", b"true", b'"\\ud800"',
        b"sshAuthorizedKeys: ", b"groups: ", b"storage: ", b"systemd: ", b"passwd: ",
    ],
    "iso": [],
    "nmstate": [
        b"&a ", b"*a", b"!!python/object:", b"\n  - ", b": ", b"{", b"]", b"\\n[ipv4]\\n", b"0x10", b"1e3", b"~",
        b"\xc2\x85", b"\xe2\x80\xa8", b"<<: ", b"---\n", b"'", b'"',
    ],
    "range": [b"bytes=", b"-", b",", b" ", b"0", b"9" * 19, b"9" * 20, b"\t", b"=", b"\xb2"],
    "request": [
        b"\r\n", b"\r\n\r\n", b"\n", b"GET /a.iso HTTP/1.1\r\n", b"Range: bytes=5-9\r\n", b"range: bytes=0-1\r\n",
        b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"HEAD",
        b"X-Range: bytes=1-2\r\n", b" bytes=7-8", b"Range:bytes=1-2\r\n", b'If-Range: "x"\r\n', b"Upgrade: x\r\n",
        b"Connection: upgrade\r\n", b"http://x/", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0", b"%00",
    ],
}  # fmt: skip


def kept(target: str) -> dict[str, bytes]:
    """The cases of a parser by name. Their files are base64: linters and editors leave bytes alone only there."""
    return {path.stem: base64.b64decode(path.read_bytes()) for path in sorted((CORPUS / target).glob("*.b64"))}


@cache
def seeds(target: str) -> list[bytes]:
    """What is mutated: the corpus, and good inputs where there are."""
    found = list(kept(target).values())
    if target == "nmstate":
        found += [path.read_bytes() for path in sorted(_DOCUMENTS.glob("*.yaml"))]
    return found


def mutated(target: str, chance: random.Random, known: list[bytes]) -> bytes:
    """One damaged input."""
    if target == "iso":
        return _iso(chance)
    data = bytearray(chance.choice(known))
    for _turn in range(chance.choice((1, 1, 2, 3, 8))):
        place = chance.randrange(len(data) + 1)
        more = chance.randrange(1, 17)
        kind = chance.randrange(6)
        if kind == 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 1 and WORDS[target]:
            data[place:place] = chance.choice(WORDS[target])
        elif kind == 2:
            del data[place : place + more]
        elif kind == 3:
            data[place:place] = data[place : place + more * chance.choice((1, 8, 64))]
        elif kind == 4:
            other = chance.choice(known)
            begin = chance.randrange(len(other) + 1)
            data[place : place + more] = other[begin : begin + more * 4]
        elif WORDS[target]:
            word = chance.choice(WORDS[target])
            data[place : place + len(word)] = word
    return bytes(data[:65536])


def _iso(chance: random.Random) -> bytes:
    """Changes where an image says what it is: descriptors, folders, and the small files that describe areas."""
    layout = chance.choice([*maker.LAYOUTS, "small", "small", "small-minimal", "small-minimal"])
    data = _made(layout)
    marks = [
        data.find(word) for word in (b'{"default"', b'"igninfo', b'{"file"', b"MINISO\0\0", b"coreKarg", b"coreiso+")
    ]
    zones = [(16 * 2048, 20 * 2048), (20 * 2048, 40 * 2048), *((at, at + 400) for at in marks if at >= 0)]
    changes = []
    for _turn in range(chance.choice((1, 1, 2, 4))):
        low, high = chance.choice(zones)
        offset = chance.randrange(low, min(high, len(data)))
        content = chance.choice((
            bytes([chance.randrange(256)]), chance.randbytes(4), b"\xff" * 4, bytes(8), b"-1", b"[", b"99999",
            chance.randrange(200).to_bytes(4, "little"), data[offset + 34 : offset + 68],
        ))  # fmt: skip
        changes.append([offset, content.hex()])
    case = {"layout": layout, "changes": changes}
    if chance.random() < 0.1:
        case["length"] = chance.randrange(len(data))
    return json.dumps(case).encode()
