# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers, JSON and base64 in the texts of others: what they say, or nothing."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import text as common
from tests.unit.common import odd


@given(st.integers(0, common.LARGEST_NUMBER))
def test_a_number_is_itself(number):
    for given_as in (str(number), str(number).encode(), f"{number:019d}"):
        assert common.is_digits(given_as)
        assert common.whole_number(given_as) == number


@odd.examples()
@given(odd.texts)
def test_everything_else_is_none_and_never_an_error(text):
    digits = re.fullmatch("[0-9]+", text) is not None
    number = common.whole_number(text)
    assert common.is_digits(text) is digits
    assert (number is not None) is (digits and len(text) < 20 and int(text) <= common.LARGEST_NUMBER)
    assert number is None or 0 <= number <= common.LARGEST_NUMBER
    raw = text.encode("utf-8", "surrogatepass")
    assert common.whole_number(raw) == number


@pytest.mark.parametrize("value", [None, True, 5, 5.0, ["5"], {"5": 5}, "9223372036854775808", "0" * 20])
def test_what_is_no_text_or_too_large_is_none(value):
    assert common.whole_number(value) is None


def test_the_limit_is_included():
    assert common.whole_number("65535", 65535) == 65535
    assert common.whole_number("65536", 65535) is None


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans())))
def test_an_object_is_itself(value):
    for text in (json.dumps(value), json.dumps(value).encode()):
        assert common.json_object(text) == common.json_value(text) == value


@odd.examples(*odd.NUMBERS, odd.DEEP, '{"a":' * 100_000, "\ud800", "{", "[1]", "null")
@given(odd.texts)
def test_what_is_no_object_is_none_and_never_an_error(text):
    assert common.json_object(text) is None
    assert common.json_object(text.encode("utf-8", "surrogatepass")) is None


@pytest.mark.parametrize("text", [odd.DEEP, b"\xff{}", "{", "", "9" * 5000 + "x"])
def test_json_that_is_none_is_one_kind_of_error(text):
    with pytest.raises(ValueError):
        common.json_value(text)


@given(st.binary(max_size=60))
def test_base64_is_its_bytes(data):
    for text in (base64.b64encode(data), base64.b64encode(data).decode()):
        assert common.base64_bytes(text) == data


@odd.examples("é", "A", "AAA", "AA=A", "AAAA\n", "\ud800")
@given(odd.texts)
def test_other_base64_is_none_and_never_an_error(text):
    data = common.base64_bytes(text)
    assert data is None or len(data) <= len(text)
    if not re.fullmatch("[A-Za-z0-9+/=]*", text):
        assert data is None


@given(st.text())
def test_an_escaped_text_is_one_printable_line_that_says_the_same(text):
    shown = common.escaped(text)
    assert shown.isprintable()
    assert shown == text or "\\" in shown


def test_what_is_escaped():
    assert common.escaped("añ ñ—ü\n\x1b[31m\u2028\ud7fc") == "añ ñ—ü\\n\\x1b[31m\\u2028\\ud7fc"


def test_what_stands_in_one_line_of_a_message():
    assert common.printable_words("a\x1b[1m\n  b\u202ec\t") == "a [1m b c"
    assert common.ascii_words(" Crucial\u00a0 é\nMX\x00 ") == "Crucial MX"
    assert common.ascii_words("a" * 300) == "a" * 200
    assert common.shortened("abcd", 4) == "abcd"
    assert common.shortened("abcde", 4) == "abc…"
    assert [common.has_control(one) for one in ("a b", "a\tb", "\x7f", "é\u2028")] == [False, True, True, False]


def test_names_in_a_message_are_few():
    assert common.listed(["a", "b", "c"]) == "a, b, c"
    assert common.listed(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert common.listed(["a", "b", "c"], 1) == "a and 2 more"
    assert common.listed([]) == ""


def test_columns_are_aligned_and_end_without_blanks():
    assert common.in_columns([("a", "bcd", "e"), ("fg", "h", "")]) == ["a   bcd  e", "fg  h"]
    assert common.in_columns([]) == []


def test_labels_of_a_metric():
    assert common.metric_labels({"a": 'x"y\\z\n', "b": "c"}) == '{a="x\\"y\\\\z\\n",b="c"}'
    assert common.metric_labels({}) == ""


@pytest.mark.parametrize(("number", "said"), [(0, "0 machines"), (1, "1 machine"), (2, "2 machines")])
def test_one_is_not_several(number, said):
    assert common.counted(number, "machine") == said
