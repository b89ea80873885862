# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label selectors against the meaning of their parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.api.api_errors import ApiError
from lab.api.selectors import label_problems, parse

SERVERS = {
    "a": {"env": "prod", "tier": "1"},
    "b": {"env": "dev"},
    "c": {"tier": "2", "example.org/owner": "me"},
    "d": {},
    "e": {"env": ""},
}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abcde"),
        ("env=prod", "a"),
        ("env==prod", "a"),
        ("env = prod", "a"),
        ("env=", "e"),
        ("env!=prod", "bcde"),
        ("env", "abe"),
        ("!env", "cd"),
        ("! env", "cd"),
        ("env in (prod,dev)", "ab"),
        ("env in (prod, dev)", "ab"),
        ("env notin (prod,dev)", "cde"),
        ("env,tier", "a"),
        ("env in (prod,dev),!tier", "b"),
        ("example.org/owner=me", "c"),
        ("tier in (1,2),env!=prod", "c"),
    ],
)
def test_selectors(selector, names):
    matches = parse(selector)
    assert "".join(name for name, labels in SERVERS.items() if matches(labels)) == names


@pytest.mark.parametrize(
    "selector",
    ["=", "a=b=c", "a in", "a in (b", "a in ()c", "-a", "a b", "a=%", "a,,b", "a=b,", "!", "a in (b c)", "a!b"],
)
def test_nonsense_is_refused(selector):
    with pytest.raises(ApiError) as refusal:
        parse(selector)
    assert (refusal.value.status, refusal.value.code) == (422, "invalid_input")
    assert refusal.value.details["fields"][0]["name"] == "label_selector"


WORD = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
LABELS = st.dictionaries(WORD, WORD | st.just(""), max_size=4)


@given(LABELS, WORD, WORD)
def test_each_operator_and_its_opposite(labels, key, value):
    assert parse(f"{key}={value}")(labels) == (labels.get(key) == value)
    assert parse(f"{key}={value}")(labels) != parse(f"{key}!={value}")(labels)
    assert parse(f"{key} in ({value})")(labels) != parse(f"{key} notin ({value})")(labels)
    assert parse(key)(labels) != parse(f"!{key}")(labels)


@given(LABELS, st.lists(st.tuples(WORD, WORD), min_size=1, max_size=4))
def test_comma_is_and(labels, pairs):
    terms = [f"{key}={value}" for key, value in pairs]
    assert parse(",".join(terms))(labels) == all(parse(term)(labels) for term in terms)


@given(st.text(max_size=30))
def test_any_text_is_either_a_selector_or_refused(text):
    code, result = None, None
    try:
        result = parse(text)({})
    except ApiError as refusal:
        code = refusal.code
    assert (code == "invalid_input") != (result in (True, False))


@given(LABELS)
def test_good_labels_have_no_problems(labels):
    assert label_problems(labels) == []


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"-a": "x"},
        {"a-": "x"},
        {"a" * 64: "x"},
        {"a": "x" * 64},
        {"a": "-"},
        {"a b": "x"},
        {"A_B/c": "x"},
        {"/c": "x"},
        {"hetzner.cloud/x": "y"},
        {".".join(["a" * 63] * 4) + ".b/c": "x"},
        {"a": "ü"},
        {"a\n": "x"},
    ],
)
def test_bad_labels(labels):
    assert label_problems(labels)


def test_longest_labels():
    prefix = ".".join(["a" * 62] * 4)
    assert len(prefix) == 251
    assert label_problems({f"{prefix}/{'k' * 63}": "v" * 63}) == []
