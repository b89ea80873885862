# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heads of requests and their limits: every byte counts, however it arrives."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.server.requests import RequestReader

LIMIT = 16 * 1024
LINE = b"GET /a.iso HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /a.iso HTTP/1.1\r\nHost: x\r\n"


def fed(data: bytes, piece: int) -> list[int]:
    """The problems (0: none) of the requests in bytes that arrive in pieces of this length."""
    reader = RequestReader()
    found = []
    for at in range(0, len(data), piece):
        found += [request.problem for request in reader.feed(data[at : at + piece])]
    return found


def padded(start: bytes, pad: bytes, end: bytes, length: int) -> bytes:
    return start + pad * (length - len(start) - len(end)) + end


ENDLESS = {
    "value": LINE + b"X: " + b"a" * 3 * LIMIT,
    "name": LINE + b"a" * 3 * LIMIT,
    "blanks-before-a-value": LINE + b"X:" + b" " * 3 * LIMIT,
    "folded": LINE + b"X: a\r\n" + b" a\r\n" * LIMIT,
    "short-fields": LINE + b"a:\r\n" * LIMIT,
    "trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 3 * LIMIT,
    "chunk-extension": POST + b"Transfer-Encoding: chunked\r\n\r\n5;a=" + b"a" * 3 * LIMIT,
    "chunks-of-one": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * LIMIT,
    "blank-lines-before": b"\r\n" * 2 * LIMIT,
}


@pytest.mark.parametrize("piece", [1, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_what_never_ends_is_refused(name, piece):
    (problem,) = fed(ENDLESS[name], piece)
    assert problem in ((431,) if name not in ("folded", "blank-lines-before") else (400, 431))


def test_a_refusal_comes_with_the_first_byte_too_many():
    reader = RequestReader()
    head = padded(LINE + b"X: ", b"a", b"", LIMIT)
    assert reader.feed(head) == []
    assert [request.problem for request in reader.feed(b"a")] == [431]


@pytest.mark.parametrize("piece", [1, 7, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("before", [
    b"",
    LINE + b"\r\n",
    (LINE + b"\r\n") * 30,
    POST + b"Content-Length: 5000\r\n\r\n" + b"a" * 5000,
    POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\naaaaa\r\n0\r\n\r\n",
], ids=["nothing", "one", "many", "body", "chunks"])  # fmt: skip
def test_the_limit_is_the_same_behind_other_requests_and_in_every_piece(before, piece):
    good = padded(LINE + b"X: ", b"a", b"\r\n\r\n", LIMIT)
    known = fed(before, 1)
    assert fed(before + good + good, piece) == [*known, 0, 0]
    assert fed(before + good[:-4] + b"a\r\n\r\n", piece) == [*known, 431]


@pytest.mark.parametrize("piece", [1, 4096, 1 << 20])
def test_a_body_is_thrown_away_up_to_its_own_limit(piece):
    assert fed(POST + b"Content-Length: 65536\r\n\r\n" + b"a" * 65536 + LINE + b"\r\n", piece) == [0, 0]
    assert fed(POST + b"Content-Length: 70000\r\n\r\n" + b"a\n" * 35000, piece) == [400]
