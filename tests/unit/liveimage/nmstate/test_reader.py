# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a document: YAML 1.2 without surprises, JSON, and nothing that grows or makes objects."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate import parse

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    "%s: &%s [%s]\n" % (new, new, ",".join(["*" + old] * 9)) for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("52:54:00:12:34:56", "52:54:00:12:34:56"),  # a number to the base 60 in YAML 1.1
        ("no", "no"),
        ("on", "on"),
        ("010", "010"),
        ("1e3", "1e3"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2026-11-21", "2026-11-21"),
        ("10", 10),
        ("-1", -1),
        ("true", True),
        ("~", None),
        ("", None),
        ("'10'", "10"),
        ("!!str 10", "10"),
        ("=", "="),
    ],
)
def test_scalars(text, value):
    found = parse("key: %s\n" % text)["key"]
    assert found == value
    assert type(found) is type(value)


def test_json_is_read_as_json():
    assert parse('{"a": [1, "\\ud83d\\ude00", null, false], "b": "x"}') == {"a": [1, "😀", None, False], "b": "x"}


def test_braces_may_be_yaml():
    assert parse("{a: 1, b: [c]}") == {"a": 1, "b": ["c"]}


@pytest.mark.parametrize("text", ["", "\n", "---\n", "# nothing\n", "--- ~\n"])
def test_an_empty_document_says_nothing(text):
    assert parse(text) == {}


def test_aliases_are_followed():
    assert parse("a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\na: 2\n", "line 2: key a is given twice"),
        ('{"a": 1, "a": 2}', "key a is given twice"),
        ("a: 1\n---\nb: 2\n", "more than one YAML document"),
        ("- a\n", "a list, not a mapping"),
        ("text\n", "not a mapping"),
        ("a: [\n", "is no YAML in line"),
        ("a: !!python/object/apply:os.system [id]\n", "tag 'tag:yaml.org,2002:python/object/apply:os.system'"),
        ("a: !!int 5\n", "tag 'tag:yaml.org,2002:int' is not supported"),
        ("a: *b\n", "line 1"),
        ("[a]: b\n", "a key is no text"),
        ("a: &a [*a]\n", "alias"),
        (BOMB, "more than 100000 values"),
        ("[" * 5000, "nested deeper"),
        ("a: " + "{a: " * 5000, "nested deeper"),
        ('{"a":' + "[" * 60 + "]" * 60 + "}", "nested deeper"),
        ('{"a":' * 100_000, "nested deeper"),
        ("a: " + "x" * 600_000, "524288 is the most"),
        ("a: \x00\n", "is no YAML"),
        ("a: \ud800\n", "no text in UTF-8"),
    ],
)
def test_refused_by_name(text, reason):
    with pytest.raises(ImageError) as caught:
        parse(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(max_size=200), st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?~ \n\t\\0<", max_size=60)))
@example("a: !<> b")
@example("%YAML 9.9\n---\na: b")
@example("? [a]\n: b")
def test_any_text_is_read_or_refused(text):
    try:
        found = parse(text)
    except ImageError as error:
        assert str(error).isprintable()
    else:
        assert isinstance(found, dict)
