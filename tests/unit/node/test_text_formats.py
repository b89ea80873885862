# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values with any characters survive the formats they are written in."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import templates
from tests.unit.node.samples import unhurried

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
LINE = st.text(st.characters(exclude_categories=("Cs", "Cc")))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS)
VALUES = st.recursive(SCALARS, lambda below: st.lists(below, max_size=4), max_leaves=8)
DOCUMENTS = st.recursive(
    st.dictionaries(TEXT, VALUES, max_size=4),
    lambda below: st.dictionaries(TEXT, st.one_of(VALUES, below), max_size=4),
    max_leaves=8,
)
LIKE_NAMED = st.recursive(
    SCALARS,
    lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=3) | st.lists(below, max_size=2),
    max_leaves=8,
)
OVERLAPPING = st.dictionaries(st.sampled_from("abcd"), LIKE_NAMED, max_size=4)


@unhurried
@given(DOCUMENTS)
def test_toml_is_read_back_as_it_was(document):
    assert tomllib.loads(templates.toml_document(document)) == document


def test_toml_tables_inside_lists_are_inline():
    document = {"hosts": [{"name": 'a"b', "ports": [1, 2]}]}
    assert tomllib.loads(templates.toml_document(document)) == document


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), "\ud800"])
def test_toml_refuses_what_it_cannot_hold(value):
    with pytest.raises(ValueError):
        templates.toml_document({"key": value})


def test_toml_leaves_nulls_out():
    assert tomllib.loads(templates.toml_document({"a": None, "b": {"c": None}})) == {"b": {}}


@unhurried
@given(OVERLAPPING, OVERLAPPING)
def test_merging_holds_everything_of_the_user(base, over):
    result = templates.merged(base, over)
    assert set(result) == set(base) | set(over)
    for key, value in over.items():
        if not isinstance(value, dict):
            assert result[key] == value
    assert templates.merged(result, over) == result


@unhurried
@given(DOCUMENTS)
def test_merging_with_nothing_changes_nothing(document):
    assert templates.merged(document, {}) == document
    assert templates.merged({}, document) == document


def test_a_null_of_the_user_takes_away():
    base = {"plugins": {"cri": {"a": 1, "b": 2}}, "version": 3}
    assert templates.merged(base, {"plugins": {"cri": {"a": None}}, "no": None}) == {
        "plugins": {"cri": {"b": 2}},
        "version": 3,
    }
    assert base["plugins"]["cri"] == {"a": 1, "b": 2}


def unquoted(line: str) -> str:
    """What systemd makes of one quoted word: escapes of systemd.syntax(7), then %% of systemd.unit(5)."""
    assert line.startswith('"')
    assert line.endswith('"')
    body = line[1:-1]
    # an unescaped quote would end the word
    assert not re.search(r'(?<!\\)(?:\\\\)*"', body)
    text = re.sub(r'\\(["\\])', r"\1", body)
    assert not re.search(r"%(?!%)", text.replace("%%", ""))
    return text.replace("%%", "%")


@unhurried
@given(LINE)
def test_systemd_reads_the_environment_as_it_was(value):
    line = templates.systemd_environment("HTTPS_PROXY", value)
    name, _sign, word = line.partition("=")
    assert name == "Environment"
    assert unquoted(word) == "HTTPS_PROXY=" + value
    assert "\n" not in line


@unhurried
@given(LINE)
def test_systemd_reads_the_argument_as_it_was(value):
    assert unquoted(templates.systemd_word(value)).replace("$$", "$") == value


@unhurried
@given(LINE)
def test_apt_reads_one_value(value):
    text = templates.apt_value(value)
    assert text[0] == text[-1] == '"'
    assert '"' not in text[1:-1]
    assert text[1:-1].replace("%22", '"') == value.replace("%22", '"')


def environment(value):
    return templates.systemd_environment("A", value)


@pytest.mark.parametrize("write", [templates.systemd_word, templates.apt_value, environment])
@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\x00", "\x7f"])
def test_no_format_carries_a_second_line(write, value):
    with pytest.raises(ValueError, match="control character"):
        write(value)
