# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast path and the full one: a request that the fast path answers gets the same answer on the full path."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Zeros, read, whole
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import (
    Answers,
    Registry,
    fast_answer,
    fast_request,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.requests import (
    Request,
    RequestReader,
)

SIZE = 1 << 20


def cased(text: str) -> st.SearchStrategy[str]:
    """The text, with some letters in the other case."""
    return st.lists(st.booleans(), min_size=len(text), max_size=len(text)).map(
        lambda swaps: "".join(one.swapcase() if swap else one for one, swap in zip(text, swaps, strict=True))
    )


NAMES = st.sampled_from(["User-Agent", "Accept", "Accept-Encoding", "X-Request-Id", "Keep-Alive", "X-Range", "Cookie",
                         "hos", "ran", "i", "Via", "~", "Expect"])  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["", "*/*", "curl/8.1", "bytes=1-2", " \t ", "a, b", "100-continue"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40),
)
BLANKS = st.sampled_from(["", " ", "  ", "\t", " \t "])
PATHS = st.one_of(
    st.just("/a.iso"), st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=30)
)
QUERIES = st.sampled_from(["", "?", "?a=b&c", "?a?b"])
NUMBERS = st.one_of(st.integers(0, SIZE + 5000), st.integers(0, 10**19 - 1))


@st.composite
def plain_heads(draw: st.DrawFn) -> tuple[bytes, Request]:
    """The head of a GET of one range, as readers write it, and what it asks for."""
    path, first, last = "/" + draw(PATHS), draw(NUMBERS), draw(NUMBERS)
    fields = draw(st.lists(st.tuples(NAMES.flatmap(cased), BLANKS, VALUES), max_size=6))
    if draw(st.booleans()):
        fields.append((draw(cased("Connection")), draw(BLANKS), draw(cased("keep-alive"))))
    fields.append((draw(cased("Host")), draw(BLANKS), draw(st.sampled_from(["", "x", "[fe80::1]:80", "a_b:8084"]))))
    fields.append((draw(cased("Range")), draw(BLANKS), f"bytes={first}-{last}"))
    lines = "".join(f"{name}:{blank}{value}\r\n" for name, blank, value in draw(st.permutations(fields)))
    head = f"GET {path}{draw(QUERIES)} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
    return head, Request("GET", path, {"range": f"bytes={first}-{last}"}, True, False, 0)


ODD_LINES = [
    "Host: x", "Host: y", "host: x y", "Host : x", "Host: x ", "Range: bytes=0-9", "Range: bytes=0-9 ",
    "Range:bytes=5-", "Range: bytes=0-1,3-4", "Range: bytes=-5", "Range: bytes = 1-2", "Range: BYTES=1-2",
    "Range: bytes=01-0002", "Range: bytes=1-" + "9" * 25, "If-Range: \"a\"", "if-none-match: *", "If-Match: *",
    "If-: x", "If-Modified-Since: Sat, 21 Nov 2026 12:00:00 GMT", "Connection: close",
    "Connection: keep-alive ", "Connection: keep-alive, close", "Connection: upgrade", "Connection:",
    "connection: Keep-Alive", "Proxy-Connection: close", "Proxy-Connection: keep-alive", "Content-Length: 0",
    "Content-Length: 5", "Content-Length: -1", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
    "Upgrade: h2c", "Upgrade-Insecure-Requests: 1", " folded", "\tfolded: x", "no colon", ": no name",
    "X\0: nul", "X: nul\0", "X: bare\rreturn", "X: bare\nfeed", "X: \x7f", "X: \x01", "X: \xff", "X\xff: y",
    "X Y: z", "(X): y", "", "Trailer: x", "X: " + "a" * 2100, "Proxy-Connection: x, close",
    "Connection: keep-alive\rx", "Connection: keep-alivex",
]  # fmt: skip
ODD_STARTS = [
    "GET /a.iso HTTP/1.1", "GET /a.iso HTTP/1.1", "GET /a.iso HTTP/1.0", "GET /a.iso HTTP/2.0", "GET /a.iso",
    "get /a.iso HTTP/1.1", "HEAD /a.iso HTTP/1.1", "POST /a.iso HTTP/1.1", "GET  /a.iso HTTP/1.1",
    "GET /a.iso  HTTP/1.1", "GET /a.iso HTTP/1.1 ", "GET http://x/a.iso HTTP/1.1", "GET * HTTP/1.1",
    "GET a.iso HTTP/1.1", "GET //x/a.iso HTTP/1.1", "GET /a#b HTTP/1.1", "GET /a?b#c HTTP/1.1",
    "GET /a?b?c HTTP/1.1", "GET /\xe4 HTTP/1.1", "GET /a\tb HTTP/1.1", "GET /a\0 HTTP/1.1", "",
    "GET /%00 HTTP/1.1", "GET /a.iso http/1.1", "GET /a.iso HTTP/1.1\r\n", "\r\nGET /a.iso HTTP/1.1",
    "GET /" + "a" * 2050 + " HTTP/1.1", "GET /a\x7f HTTP/1.1", "CONNECT x:1 HTTP/1.1",
]  # fmt: skip
ENDS = st.sampled_from(["\r\n"] * 30 + ["\n", "\r", ""])
BEHIND = st.sampled_from([""] * 8 + ["a", "\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"])


@st.composite
def odd_heads(draw: st.DrawFn) -> bytes:
    """Heads that are in doubt, many of them by one line only."""
    known = draw(st.sampled_from([("Host: x", "Range: bytes=5-9")] * 6 + [("Host: x",), ("Range: bytes=5-9",), ()]))
    lines = draw(st.permutations([*known, *draw(st.lists(st.sampled_from(ODD_LINES), min_size=1, max_size=2))]))
    start = draw(st.one_of(st.just(ODD_STARTS[0]), st.just(ODD_STARTS[0]), st.sampled_from(ODD_STARTS)))
    text = "".join(line + draw(ENDS) for line in [start, *lines, ""])
    return (text + draw(BEHIND)).encode("latin-1")


@settings(max_examples=100, deadline=None)
@given(plain_heads())
def test_what_readers_send_is_taken_and_is_what_the_parser_finds(case):
    head, wanted = case
    assert RequestReader().feed(head) == [wanted]
    found = fast_request(head)
    assert found is not None
    path, first, last = found
    assert (path, f"bytes={first}-{last}") == (wanted.path, wanted.headers["range"])


def agree(head: bytes) -> None:
    """The parser finds the same in every head that the fast path takes."""
    found = fast_request(head)
    if found is not None:
        (request,) = RequestReader().feed(head)
        path, first, last = found
        start, stop = map(int, request.headers.pop("range").removeprefix("bytes=").split("-"))
        assert (start, stop) == (first, last)
        assert request == Request("GET", path, {}, True, False, 0)


def test_one_odd_line_is_what_the_parser_finds():
    for start in ODD_STARTS:
        agree(f"{start}\r\nHost: x\r\nRange: bytes=5-9\r\n\r\n".encode("latin-1"))
    for odd in ODD_LINES:
        for lines in ((odd, "Host: x", "Range: bytes=5-9"), ("Range: bytes=5-9", odd, "Host: x"), ("Host: x", odd),
                      ("Range: bytes=5-9", "Host: x", odd), (odd, "Range: bytes=5-9"), (odd,)):  # fmt: skip
            agree(("\r\n".join([ODD_STARTS[0], *lines]) + "\r\n\r\n").encode("latin-1"))


@settings(max_examples=400, deadline=None)
@given(odd_heads())
def test_what_is_taken_in_doubt_is_what_the_parser_finds(head):
    agree(head)


@settings(max_examples=150, deadline=None)
@given(plain_heads(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3))
def test_one_other_byte_is_never_overlooked(case, changes):
    data = bytearray(case[0])
    for place, value in changes:
        data[int(place * len(data))] = value
    agree(bytes(data))


LINES = {
    "no-host": b"Range: bytes=5-9\r\n",
    "two-hosts": b"Host: x\r\nHost: x\r\nRange: bytes=5-9\r\n",
    "odd-host": b"Host: x y\r\nRange: bytes=5-9\r\n",
    "no-range": b"Host: x\r\n",
    "two-ranges": b"Range: bytes=5-9\r\nHost: x\r\nRange: bytes=1-2\r\n",
    "two-ranges-behind": b"Host: x\r\nRange: bytes=5-9\r\nrange: bytes=1-2\r\n",
    "several": b"Host: x\r\nRange: bytes=5-9,11-12\r\n",
    "huge": b"Host: x\r\nRange: bytes=5-99999999999999999999\r\n",
    "condition": b'Host: x\r\nRange: bytes=5-9\r\nIf-Range: "a"\r\n',
    "date": b"Host: x\r\nRange: bytes=5-9\r\nif-unmodified-since: x\r\n",
    "close": b"Host: x\r\nRange: bytes=5-9\r\nConnection: close\r\n",
    "upgrade": b"Host: x\r\nRange: bytes=5-9\r\nUpgrade: h2c\r\n",
    "body": b"Host: x\r\nRange: bytes=5-9\r\nContent-Length: 1\r\n",
    "chunks": b"Host: x\r\nRange: bytes=5-9\r\nTransfer-Encoding: chunked\r\n",
    "folded": b"Host: x\r\nRange: bytes=5-9\r\n ,11-12\r\n",
    "long": b"Host: x\r\nRange: bytes=5-9\r\nX: " + b"a" * 2048 + b"\r\n",
}


@pytest.mark.parametrize("name", sorted(LINES))
def test_what_means_more_than_a_range_is_left_to_the_parser(name):
    assert fast_request(b"GET /a.iso HTTP/1.1\r\n" + LINES[name] + b"\r\n") is None


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, bytes]:
    path: Path = tmp_path_factory.mktemp("base") / "base.iso"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    overlay = whole(identify(str(path))).patched([(100_000, b"ignition" * 100), (200_000, Zeros(5000))], [b"end"])
    registry = Registry()
    registry.put("/a.iso", "host", overlay, 0)
    return Answers(registry), read(overlay, 0, overlay.size)


@settings(max_examples=100, deadline=None)
@given(first=NUMBERS, length=st.one_of(st.integers(-1, 5000), st.integers(0, 200_000)), near=st.booleans())
def test_the_answer_is_that_of_the_long_way(answers, first, length, near):
    if near:
        first = 95_000 + first % 120_000
    served, content = answers
    last = max(0, first + length - 1)
    found = fast_answer(served, b"GET /a.iso HTTP/1.1\r\nHost: x\r\nRange: bytes=%d-%d\r\n\r\n" % (first, last), 0.0)
    long = served.answer("GET", "/a.iso", {"range": f"bytes={first}-{last}"})
    if found is not None:
        sent, image, start, stop = found
        assert (long.status, long.image, list(long.spans)) == (206, image, [(start, stop)])
        head, _blank, body = sent.partition(b"\r\n\r\n")
        assert dated(head + b"\r\n\r\n") == dated(long.head)
        assert body == content[first : last + 1]
    else:
        over = last >= len(content) or length < 1 or length > 65536
        assert over or any(first < stop and start <= last for start, stop in ((100_000, 100_800), (200_000, 205_000),
                                                                              (SIZE, SIZE + 3)))  # fmt: skip


def dated(head: bytes) -> list[bytes]:
    """The lines of a head but for its date, which may be of another second."""
    return [line for line in head.split(b"\r\n") if not line.startswith(b"Date: ")]


def test_there_is_no_answer_for_what_is_not_there(answers):
    served, _content = answers
    lines = b" HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9\r\n\r\n"
    assert fast_answer(served, b"GET /b.iso" + lines, time.monotonic()) is None
    closed = Answers(served.registry, lambda _path: None)
    assert fast_answer(closed, b"GET /a.iso" + lines, time.monotonic()) is None
    assert fast_answer(served, b"GET /a.iso" + lines, time.monotonic())
