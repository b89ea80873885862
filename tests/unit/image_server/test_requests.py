# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heads of requests and their limits: every byte counts, however it arrives."""

from __future__ import annotations

import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import urls
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import requests
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


# --- range and conditional headers as RFC 9110 has them; names that cannot be guessed


SECRET = b"s" * 32
DATE = "Sat, 21 Nov 2026 12:00:00 GMT"
MOMENT = 1795262400


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=0-", [(0, 1000)]),
        ("bytes=-1", [(999, 1000)]),
        ("bytes=-5000", [(0, 1000)]),
        ("bytes=990-2000", [(990, 1000)]),
        ("bytes = 1-2", [(1, 3)]),
        ("BYTES=1-2", [(1, 3)]),
        ("bytes=0-1, 5-6 ,,", [(0, 2), (5, 7)]),
        ("bytes=0-1,2000-", [(0, 2)]),
        ("bytes=1000-", []),
        ("bytes=-0", []),
        ("bytes=1000-,2000-3000", []),
        ("bytes=5-4", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=1-2-3", None),
        ("bytes=+1-2", None),
        ("bytes=１-２", None),
        ("lines=1-2", None),
        ("bytes", None),
        ("bytes=" + ",".join("0-1" for _n in range(requests.MOST + 1)), None),
        ("bytes=0-999,0-999", None),
        ("bytes=99999999999999999999-", []),
        ("bytes=0-99999999999999999999", [(0, 1000)]),
        ("bytes=990-" + "9" * 500, [(990, 1000)]),
        ("bytes=" + "0" * 30 + "5-" + "0" * 30 + "6", [(5, 7)]),
        ("bytes=-" + "9" * 40, [(0, 1000)]),
        ("bytes=" + "9" * 40 + "-" + "9" * 41, []),
        ("bytes=" + "9" * 41 + "-" + "9" * 40, None),
        ("bytes=0-1," + "9" * 40 + "-", [(0, 2)]),
        ("bytes=0-" + "9" * 5000, None),
    ],
)
def test_ranges(header, wanted):
    assert requests.ranges_of(header, 1000) == wanted


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=5))
def test_good_ranges_mean_what_they_say(pairs):
    pairs = [(min(pair), max(pair)) for pair in pairs]
    header = "bytes=" + ",".join(f"{first}-{last}" for first, last in pairs)
    found = requests.ranges_of(header, 1000)
    if len(pairs) > 1 and sum(last + 1 - first for first, last in pairs) > 1000:
        assert found is None
    else:
        assert found == [(first, last + 1) for first, last in pairs]


@pytest.mark.parametrize(
    ("header", "same"),
    [
        ('"tag"', True),
        (' "tag" ', True),
        ('W/"tag"', False),
        ('"other"', False),
        ("tag", False),
        (DATE, False),
        ("", False),
    ],
)
def test_only_a_strong_tag_lets_ranges_through(header, same):
    assert requests.if_range(header, "tag") is same


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({}, False),
        ({"if-none-match": '"tag"'}, True),
        ({"if-none-match": 'W/"tag"'}, True),
        ({"if-none-match": '"a", "tag"'}, True),
        ({"if-none-match": "*"}, True),
        ({"if-none-match": '"a"', "if-modified-since": DATE}, False),
        ({"if-modified-since": DATE}, True),
        ({"if-modified-since": "Sat, 21 Nov 2026 11:59:59 GMT"}, False),
        ({"if-modified-since": "yesterday"}, False),
    ],
)
def test_not_modified(headers, same):
    assert requests.not_modified(headers, "tag", MOMENT) is same


BEFORE = "Sat, 21 Nov 2026 11:59:59 GMT"


@pytest.mark.parametrize(
    ("headers", "failed"),
    [
        ({}, False),
        ({"if-match": "*"}, False),
        ({"if-match": '"tag"'}, False),
        ({"if-match": '"a"'}, True),
        ({"if-match": 'W/"tag"'}, True),
        ({"if-unmodified-since": DATE}, False),
        ({"if-unmodified-since": "Sat, 21 Nov 2026 12:00:01 GMT"}, False),
        ({"if-unmodified-since": BEFORE}, True),
        ({"if-unmodified-since": "Saturday, 21-Nov-26 11:59:59 GMT"}, True),
        ({"if-unmodified-since": "Sat Nov 21 11:59:59 2026"}, True),
        ({"if-unmodified-since": "Sat Nov 21 12:00:00 2026"}, False),
        ({"if-unmodified-since": "yesterday"}, False),
        ({"if-unmodified-since": ""}, False),
        ({"if-unmodified-since": f"{BEFORE}, {BEFORE}"}, False),  # a list of dates is none
        ({"if-match": '"tag"', "if-unmodified-since": BEFORE}, False),  # the tag alone counts
        ({"if-match": '"a"', "if-unmodified-since": DATE}, True),
    ],
)
def test_preconditions(headers, failed, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        assert requests.precondition_failed(headers, "tag", MOMENT) is failed
    finally:
        monkeypatch.undo()
        time.tzset()


def test_dates_go_both_ways():
    assert requests.http_date(MOMENT) == DATE
    assert requests.from_http_date(DATE) == MOMENT


def test_names_are_stable_short_and_all_different():
    keys = [f"metal3/host-{number}/x86_64" for number in range(200)]
    paths = [urls.public_path(SECRET, key, ".iso") for key in keys]
    assert paths == [urls.public_path(SECRET, key, ".iso") for key in keys]
    assert len(set(paths)) == 200
    assert urls.public_path(b"t" * 32, keys[0], ".iso") != paths[0]
    assert all(len(urls.sign_path(SECRET, path, 2**33)) <= urls.LONGEST_PATH for path in paths)


@given(st.text(max_size=40), st.integers(0, 2**33), st.integers(0, 2**33))
def test_signed_names_open_until_they_expire(key, expires, now):
    path = urls.public_path(SECRET, key, ".iso")
    signed = urls.sign_path(SECRET, path, expires)
    assert urls.unsign_path(SECRET, signed, now) == (path if now < expires else None)
    assert urls.unsign_path(b"t" * 32, signed, now) is None
    assert urls.unsign_path(SECRET, path, now) is None


@given(st.data())
def test_a_changed_signature_opens_nothing(data):
    signed = urls.sign_path(SECRET, urls.public_path(SECRET, "host", ".iso"), 2**32)
    place = data.draw(st.integers(0, len(signed) - 1))
    other = data.draw(st.characters(codec="ascii"))
    changed = signed[:place] + other + signed[place + 1 :]
    if changed != signed:
        assert urls.unsign_path(SECRET, changed, 0) is None


@given(st.integers(0, 1 << 33))
def test_dates_are_those_of_the_library(seconds):
    date = requests.http_date(seconds)
    assert date == email.utils.formatdate(seconds, usegmt=True)
    assert requests.from_http_date(date) == seconds
