# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The executable, and its reader of YAML."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from lab.kubelet import VERSIONS, UnknownVersion, build, bundle
from lab.kubelet.app.yaml import loads
from lab.kubelet.app.yaml_scalars import YamlError


def test_same_version_same_bytes() -> None:
    assert build("1.36.4") == build("v1.36.4")
    assert len({build(version) for version in VERSIONS}) == len(VERSIONS)
    assert build("1.36.4").startswith(b"#!/usr/bin/env python3\n")


def test_sources_are_for_the_oldest_python_of_a_machine() -> None:
    for path in sorted(Path(bundle.__file__).with_name("app").glob("*.py")):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))


@pytest.mark.parametrize("version", ["1.20.2", "1.36", "1.36.4; true", ""])
def test_versions_without_tables_are_refused(version: str) -> None:
    with pytest.raises(UnknownVersion):
        build(version)


#: what people write, and what the two dialects of YAML read alike
_PIECES = ["a: b", "- x", "#no", "a #b", "'", '"', "null", "yes", "1", "a\nb\n", "\n", "x\n\ny", "| ", "*a", "&b", "{"]
_TEXT = st.lists(st.sampled_from([*_PIECES, "word", "ü", ": ", ", ", "[x]", "-", "10s", "key=value", "\\", "\t"])).map(
    " ".join
)
_KEY = st.from_regex(r"[A-Za-z][A-Za-z0-9./_-]{0,20}", fullmatch=True) | st.sampled_from(["true", "1", "a b"])
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1000, 1000, width=16) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEY, inner, max_size=4),
    max_leaves=15,
)


@example(["null |  - x"], None, 20)
@given(_VALUE, st.sampled_from([None, False, True]), st.sampled_from([20, 80, 1000]))
def test_yaml_is_read_as_others_write_it(value: object, flow: bool | None, width: int) -> None:
    assert loads(yaml.safe_dump(value, default_flow_style=flow, width=width)) == value
    assert loads(json.dumps(value, indent=2)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing\n---\n", None),
        ("a: |\n  x\n   y\n\n  z\nb: >-\n  x\n  y\n\n  z\n", {"a": "x\n y\n\nz\n", "b": "x y\nz"}),
        ("a: &x {k: 1}\nb: *x\n", {"a": {"k": 1}, "b": {"k": 1}}),
        ("a:\n- b\n- c: 1\n  d: 2\n-\n  - e\n", {"a": ["b", {"c": 1, "d": 2}, ["e"]]}),
        ("a: b # c\nd: 'e # f'\nurl: http://x:1/y#z\n", {"a": "b", "d": "e # f", "url": "http://x:1/y#z"}),
        ("---\na: long\n  words\n...\n", {"a": "long words"}),
        ("mode: 0644\nhex: 0x10\non: off\n", {"mode": 420, "hex": 16, True: False}),
    ],
)
def test_yaml_by_hand(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text", ["a: b: c\n", "a: [1, 2\n", "a: 'x\n", "a: 1\na: 2\n", "a: *no\n", "\ta: 1\n", "a: 1\n  b: 2\n"]
)
def test_yaml_that_is_none(text: str) -> None:
    with pytest.raises(YamlError):
        loads(text)
