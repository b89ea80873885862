# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every parser of foreign bytes: the cases that were interesting once, and some damaged ones of each run's own."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.liveimage.fuzz.mutations import CORPUS, kept, mutated, seeds
from tests.unit.liveimage.fuzz.targets import TARGETS

CASES = sorted((path.parent.name, path.stem) for path in CORPUS.glob("*/*.b64"))


def test_every_parser_has_cases():
    assert {parser for parser, _name in CASES} == set(TARGETS)


@pytest.mark.parametrize(("parser", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_kept_cases(parser, name):
    TARGETS[parser](kept(parser)[name])


@pytest.mark.parametrize("parser", sorted({*TARGETS} - {"iso"}))
@settings(max_examples=150, deadline=None, database=None)
@given(seed=st.integers(0, 2**64))
def test_damaged_inputs(parser, seed):
    TARGETS[parser](mutated(parser, random.Random(seed), seeds(parser)))


@settings(max_examples=60, deadline=None, database=None)
@given(seed=st.integers(0, 2**64))
def test_damaged_images(seed):
    TARGETS["iso"](mutated("iso", random.Random(seed), []))


@pytest.mark.parametrize("parser", ["cpio", "host", "nmstate", "range", "request", "descriptor"])
@settings(max_examples=50, deadline=None)
@given(noise=st.binary(max_size=300))
def test_noise(parser, noise):
    TARGETS[parser](noise)
