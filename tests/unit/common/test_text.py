# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers in the texts of others: ASCII digits or nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import text as common
from tests.unit.common import odd


@given(st.integers(0, common.LARGEST_NUMBER))
def test_a_number_is_itself(number):
    for given_as in (str(number), str(number).encode(), "%019d" % number):
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
