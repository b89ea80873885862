# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sorting and paging of lists, in the body and in the Link header (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lab.api.errors import invalid_input
from lab.numbers import whole_number

T = TypeVar("T")

DEFAULT_PER_PAGE = 25
MAX_PER_PAGE = 50


@dataclass(frozen=True)
class Page:
    """Which part of a list was asked for."""

    number: int = 1
    size: int = DEFAULT_PER_PAGE

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Page:
        """Read ``page`` and ``per_page``; a size above the maximum is cut down to it."""
        return cls(
            number=_positive(query, "page", 1),
            size=min(_positive(query, "per_page", DEFAULT_PER_PAGE), MAX_PER_PAGE),
        )

    def cut(self, items: Sequence[T]) -> list[T]:
        """The items of this page."""
        start = (self.number - 1) * self.size
        return list(items[start : start + self.size])

    def meta(self, total: int) -> dict[str, Any]:
        """The ``meta.pagination`` object of a list of ``total`` entries."""
        last = max(1, -(-total // self.size))
        return {
            "page": self.number,
            "per_page": self.size,
            "previous_page": min(self.number - 1, last) if self.number > 1 else None,
            "next_page": self.number + 1 if self.number < last else None,
            "last_page": last,
            "total_entries": total,
        }


def _positive(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    number = whole_number(text)
    if not number:
        raise invalid_input({name: [f"'{text}' is not an integer of at least 1"]})
    return number


def link_header(meta: Mapping[str, Any], page_url: Callable[[int], str]) -> str:
    """The Link header for ``meta.pagination``; ``page_url`` gives the address of a page."""
    targets = (("prev", meta["previous_page"]), ("next", meta["next_page"]), ("last", meta["last_page"]))
    return ", ".join(f'<{page_url(number)}>; rel="{relation}"' for relation, number in targets if number)


def sort(items: Iterable[T], wanted: Sequence[str], keys: Mapping[str, Callable[[T], Any]]) -> list[T]:
    """Sort by ``field[:asc|:desc]`` terms, the first term being the strongest; the default is by id."""
    result = sorted(items, key=keys["id"])
    for term in reversed(wanted):
        field, _dummy, direction = term.partition(":")
        if field not in keys or direction not in ("", "asc", "desc"):
            allowed = ", ".join(keys)
            raise invalid_input({"sort": [f"'{term}' is not one of {allowed}, each with :asc or :desc or nothing"]})
        result.sort(key=keys[field], reverse=direction == "desc")
    return result
