# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between aiohttp and the API: bodies in, answers and pages of lists out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from lab.numbers import whole_number

from . import schemas
from .api_errors import ApiError, invalid_input
from .cloud import Cloud
from .schemas import BodyType, parse

T = TypeVar("T")

DEFAULT_PER_PAGE = 25
MAX_PER_PAGE = 50
CLOUD: web.AppKey[Cloud] = web.AppKey("cloud", Cloud)


@dataclass(frozen=True)
class Page:
    """Which part of a list was asked for."""

    number: int = 1
    size: int = DEFAULT_PER_PAGE

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Page:
        """Read ``page`` and ``per_page``; a size above the maximum is cut down to it."""
        return cls(
            number=_positive(query, "page", 1), size=min(_positive(query, "per_page", DEFAULT_PER_PAGE), MAX_PER_PAGE)
        )

    def cut(self, items: Sequence[T]) -> list[T]:
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


def cloud(request: web.Request) -> Cloud:
    return request.config_dict[CLOUD]


def identifier(request: web.Request, name: str = "id") -> int:
    """An id from the path (the routes only match digits); -1, which nothing has, for one that is too large."""
    number = whole_number(request.match_info[name])
    return -1 if number is None else number


async def read_json(request: web.Request, empty: str = "") -> Any:
    """The JSON value in a request; ``empty`` is the value of a body without text. ApiError 400 for what is no JSON."""
    try:
        text = await request.text()
        return json.loads(text if text.strip() else empty + text)
    except (ValueError, LookupError, RecursionError) as error:  # LookupError: a charset that does not exist
        raise ApiError(400, "json_error", f"invalid JSON: {error}") from error


async def body(request: web.Request, model: type[BodyType]) -> BodyType:
    """The checked body of a request; no body counts as an empty object."""
    value = await read_json(request, "{}")
    if not isinstance(value, dict):
        raise ApiError(400, "json_error", "the body of a request must be a JSON object")
    return parse(model, value)


def answer(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(data, status=status, headers=headers)


def chosen(request: web.Request, name: str, allowed: Iterable[str]) -> set[str]:
    """The values of a repeatable filter; empty means no filter."""
    values = set(request.query.getall(name, []))
    allowed = tuple(allowed)
    wrong = sorted(values.difference(allowed))
    if wrong:
        raise invalid_input({name: [f"'{wrong[0]}' is not one of {', '.join(allowed)}"]})
    return values


def select(request: web.Request, items: Iterable[T]) -> list[T]:
    """Apply the filters that all named resources share: name (exact) and label_selector."""
    result: list[Any] = list(items)
    if "name" in request.query:
        result = [item for item in result if item.name == request.query["name"]]
    if request.query.get("label_selector"):
        matches = schemas.parse_selector(request.query["label_selector"])
        result = [item for item in result if matches(item.labels)]
    return result


def listing(
    request: web.Request,
    key: str,
    items: Iterable[T],
    view: Callable[[T], dict[str, Any]],
    sort_keys: Mapping[str, Callable[[T], Any]],
) -> web.Response:
    """One page of a list, sorted as asked, with its place in body and Link header."""
    ordered = sort(items, request.query.getall("sort", []), sort_keys)
    page = Page.from_query(request.query)
    meta = page.meta(len(ordered))
    link = link_header(meta, lambda number: str(request.url.update_query(page=number, per_page=page.size)))
    data = {key: [view(item) for item in page.cut(ordered)], "meta": {"pagination": meta}}
    return answer(data, headers={"Link": link} if link else None)


BY_ID: dict[str, Callable[[Any], Any]] = {"id": lambda item: item.id}
BY_NAME: dict[str, Callable[[Any], Any]] = BY_ID | {"name": lambda item: item.name or ""}
BY_NAME_AND_AGE: dict[str, Callable[[Any], Any]] = BY_NAME | {"created": lambda item: item.created}
