# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between two statuses, and only that, goes to the API server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import times
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import kubernetes_api
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.controller import namespaces
from tests.unit.image_server.controller.objects import NOW, THEN, merged

VALUES = st.recursive(
    st.one_of(st.text(max_size=3), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_difference_makes_one_of_the_other(old, new):
    patch = kubernetes_api.difference(old, new)
    assert merged(old, patch) == new
    assert bool(patch) == (old != new)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (None, "", True),
        ({}, {"networkData": {}, "conditions": [], "url": ""}, True),
        ({"networkData": {"name": ""}}, {}, True),
        ({"a": "x"}, {"a": "y"}, False),
        ({"a": 0}, {}, False),
        ([{"a": ""}], [{}], True),
        ([{"a": "x"}], [], False),
    ],
)
def test_what_is_empty_counts_as_absent(one, other, equal):
    assert kubernetes_api.same_values(one, other) is equal
    assert kubernetes_api.same_values(one=other, other=one) is equal


def test_times_are_those_of_kubernetes():
    assert times.to_whole_seconds(NOW) == THEN
    assert kubernetes_api.unix_time(THEN) == kubernetes_api.unix_time("2027-01-15T08:00:00.123456Z") == NOW
    assert kubernetes_api.unix_time("yesterday", 5.0) == kubernetes_api.unix_time(None, 5.0) == 5.0


def test_the_age_of_a_condition():
    status = {"conditions": [{"type": "Error", "lastTransitionTime": THEN}]}
    assert kubernetes_api.condition_age(status, "Error", NOW + 7) == 7
    assert kubernetes_api.condition_age(status, "Error", NOW - 7) == 0  # the writer's clock is ahead
    assert kubernetes_api.condition_age(status, "Ready", NOW) == 0


def test_namespaces_of_a_list():
    assert namespaces("") == namespaces(" , ") == ()
    assert namespaces("a, b,,a") == ("a", "b")
