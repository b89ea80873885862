# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pruning: the newest stay, the used stay, what others made stays, and the rest goes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.node_images import (
    judge,
    named_in_use,
    used_by_servers,
)

OURS = {"caph-image-name": "n", "kubenode.provision/node-image": "n"}


def image(number, **more):
    about = {"status": "available", "labels": OURS, "created": "2026-11-21T00:00:%02dZ" % number, "architecture": "x86"}
    return {"id": number, **about, **more}


def ids(images):
    return [one["id"] for one in images]


def test_the_oldest_go():
    doomed, stay = judge([image(1), image(3), image(2)], 1, {})
    assert (ids(doomed), stay) == ([2, 1], {})
    assert judge([image(1), image(2)], 2, {}) == ([], {})
    assert ids(judge([image(1)], 0, {})[0]) == [1]


def test_what_is_used_or_protected_or_foreign_or_unfinished_stays_and_says_why():
    images = [
        image(1, protection={"delete": True}),
        image(2, labels={"caph-image-name": "n"}),
        image(3),
        image(4),
        image(5, status="creating"),
        image(6, status="unavailable"),
        image(7),
    ]
    doomed, stay = judge(images, 1, {3: "server 'a' was made from it"})
    assert ids(doomed) == [6, 4]
    assert stay == {
        1: "protected against deletion",
        2: "not made by this collection",
        3: "server 'a' was made from it",
        5: "still being made",
    }


def test_an_unfinished_snapshot_does_not_count_as_kept():
    assert ids(judge([image(1), image(2, status="creating"), image(3, status="unavailable")], 1, {})[0]) == [3]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["available", "creating"])), unique_by=lambda one: one[0]),
    st.integers(1, 5),
    st.sets(st.integers(0, 59)),
)
def test_never_a_used_one_and_never_fewer_than_keep(given_images, keep, used):
    images = [image(number, status=status) for number, status in given_images]
    doomed, _stay = judge(images, keep, dict.fromkeys(used, "used"))
    available = sorted((one["id"] for one in images if one["status"] == "available"), reverse=True)
    assert not set(ids(doomed)) & (used | set(available[:keep]))
    assert set(available[keep:]) - used == set(ids(doomed))


def test_an_inventory_names_ids_or_the_newest_of_a_name():
    images = [image(1), image(2), image(3, architecture="arm"), image(4, status="creating")]
    assert set(named_in_use(["n"], images)) == {2, 3}
    assert set(named_in_use(["1", 3], images)) == {1, 3}
    assert named_in_use(["other"], images) == {}


def test_servers_use_what_they_were_made_from():
    servers = [{"name": "a", "image": {"id": 7}}, {"name": "b", "image": None}, {"name": "c", "image": {"id": 7}}]
    assert used_by_servers(servers) == {7: "server 'a' was made from it"}
