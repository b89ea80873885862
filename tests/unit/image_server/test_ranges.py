# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Range and conditional headers as RFC 9110 has them; names that cannot be guessed."""

from __future__ import annotations

import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import urls
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import requests

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


@given(st.text(max_size=60), st.integers(0, 2**50))
def test_no_text_breaks_the_parser(text, size):
    for header in (text, "bytes=" + text):
        for start, stop in requests.ranges_of(header, size) or ():
            assert 0 <= start < stop <= size


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
