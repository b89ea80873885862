# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heads of requests and their limits: every byte counts, however it arrives."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.requests import RequestReader

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


HOSTS = {
    "one": (b"Host: x\r\n", [0]),
    "none": (b"", [400]),
    "two": (b"Host: x\r\nHost: x\r\n", [400]),
    "two-names": (b"Host: x\r\nhOST: y\r\n", [400]),
    "empty": (b"Host:\r\n", [0]),
    "port": (b"Host: a_b.example.com:8084\r\n", [0]),
    "address": (b"Host: [fe80::1%25eth0]:80\r\n", [0]),
    "blank-inside": (b"Host: x y\r\n", [400]),
    "path": (b"Host: x/y\r\n", [400]),
    "user": (b"Host: user@x\r\n", [400]),
}


@pytest.mark.parametrize("name", sorted(HOSTS))
@pytest.mark.parametrize("target", [b"/a.iso", b"http://x/a.iso"])
def test_a_request_of_http_1_1_has_one_host(name, target):
    lines, answers = HOSTS[name]
    head = b"GET %b HTTP/1.1\r\n%b\r\n" % (target, lines)
    assert fed(head, 1) == fed(head, 1000) == answers
    assert fed(head + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1000) == (answers if answers[0] else [0, 0])
    old = b"GET %b HTTP/1.0\r\n%b\r\n" % (target, lines)
    assert fed(old, 1000) == ([0] if name == "none" else answers)


def test_the_next_request_has_its_own_host():
    assert fed(LINE + b"\r\n" + b"GET / HTTP/1.1\r\n\r\n", 1000) == [0, 400]


def test_a_field_of_a_trailer_is_no_header():
    trailer = b"0\r\nHost: y\r\nRange: bytes=0-1\r\n\r\n"
    (found,) = RequestReader().feed(LINE + b"Transfer-Encoding: chunked\r\n\r\n" + trailer)
    assert (found.problem, found.headers) == (0, {})


def test_a_date_that_is_asked_for_is_kept():
    (found,) = RequestReader().feed(LINE + b"If-Unmodified-Since: Sat, 21 Nov 2026 12:00:00 GMT\r\n\r\n")
    assert found.headers == {"if-unmodified-since": "Sat, 21 Nov 2026 12:00:00 GMT"}
