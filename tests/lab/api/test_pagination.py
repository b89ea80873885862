# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages and sorting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.api.api_errors import ApiError
from lab.api.http import Page, link_header, sort

KEYS = {"id": lambda item: item[0], "name": lambda item: item[1]}


@given(st.integers(0, 300), st.integers(1, 50))
def test_following_next_page_sees_everything_once(total, size):
    items, seen, number = list(range(total)), [], 1
    while number:
        page = Page(number, size)
        seen += page.cut(items)
        meta = page.meta(total)
        assert meta["total_entries"] == total
        number = meta["next_page"]
    assert seen == items


@given(st.integers(0, 300), st.integers(1, 50), st.integers(1, 40))
def test_meta_is_consistent(total, size, number):
    meta = Page(number, size).meta(total)
    assert meta["last_page"] >= 1
    assert (meta["last_page"] - 1) * size < max(total, 1) <= max(meta["last_page"] * size, 1)
    assert (meta["next_page"] is None) == (number >= meta["last_page"])
    assert (meta["previous_page"] is None) == (number == 1)
    if meta["previous_page"]:
        assert meta["previous_page"] <= meta["last_page"]


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, Page(1, 25)),
        ({"page": "3"}, Page(3, 25)),
        ({"per_page": "50"}, Page(1, 50)),
        ({"per_page": "1000"}, Page(1, 50)),
    ],
)
def test_query(query, page):
    assert Page.from_query(query) == page


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "²", "+1"])
@pytest.mark.parametrize("name", ["page", "per_page"])
def test_bad_query(name, text):
    with pytest.raises(ApiError) as refusal:
        Page.from_query({name: text})
    assert refusal.value.details["fields"][0]["name"] == name


def test_link_header():
    meta = Page(2, 10).meta(35)
    assert link_header(meta, lambda number: f"http://x/?page={number}") == (
        '<http://x/?page=1>; rel="prev", <http://x/?page=3>; rel="next", <http://x/?page=4>; rel="last"'
    )


def test_sort():
    items = [(3, "b"), (1, "b"), (2, "a")]
    assert sort(items, [], KEYS) == [(1, "b"), (2, "a"), (3, "b")]
    assert sort(items, ["id:desc"], KEYS) == [(3, "b"), (2, "a"), (1, "b")]
    assert sort(items, ["name", "id:desc"], KEYS) == [(2, "a"), (3, "b"), (1, "b")]
    assert sort(items, ["name:desc"], KEYS) == [(1, "b"), (3, "b"), (2, "a")]


@pytest.mark.parametrize("term", ["size", "id:up", "", ":asc"])
def test_bad_sort(term):
    with pytest.raises(ApiError) as refusal:
        sort([], [term], KEYS)
    assert refusal.value.code == "invalid_input"


@given(st.lists(st.tuples(st.integers(), st.text(max_size=3)), max_size=20))
def test_sort_keeps_all_items(items):
    assert sorted(sort(items, ["name:desc", "id"], KEYS)) == sorted(items)
