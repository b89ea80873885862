# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between aiohttp and the API: token and rate limit, bodies in, answers and pages of lists out."""

from __future__ import annotations

import hmac
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from lab.api.schemas import whole_number
from lab.faults import ApiMiddleware, Faults, Handler, RequestFault, RequestLog

from . import schemas
from .cloud_project import Cloud, found
from .schemas import ApiError, BodyType, invalid_input, parse

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


def add_resource(
    routes: web.RouteTableDef,
    kind: str,
    items: Callable[[Cloud], Mapping[int, T]],
    view: Callable[[Cloud, T], dict[str, Any]],
    *,
    label: str = "",
    filters: Iterable[str] = (),
    choices: Mapping[str, Iterable[str]] | None = None,
    model: type[BodyType],
    update: Callable[[Cloud, T, BodyType], None],
    delete: Callable[[Cloud, T], None] | None = None,
) -> None:
    """The routes of a kind of resource: a list of all, and each by its id, to be read, changed and deleted.

    ``label``: what errors call it. ``filters``: attributes that the list can be filtered by, besides name and labels;
    ``choices``: the same for attributes with these values alone. Without ``delete``, deleting is no part of it.
    """
    path = f"/{kind}s/{{id:[0-9]+}}"

    def one(request: web.Request) -> T:
        return found(label or kind.replace("_", " "), items(cloud(request)), identifier(request))

    def shown(request: web.Request, item: T) -> web.Response:
        return answer({kind: view(cloud(request), item)})

    @routes.get(f"/{kind}s")
    async def list_all(request: web.Request) -> web.Response:
        wanted = {name: set(request.query.getall(name, [])) for name in filters}
        wanted |= {name: chosen(request, name, allowed) for name, allowed in (choices or {}).items()}
        kept = [
            item
            for item in select(request, items(cloud(request)).values())
            if all(not values or str(getattr(item, name)) in values for name, values in wanted.items())
        ]
        return listing(request, f"{kind}s", kept, lambda item: view(cloud(request), item), BY_NAME_AND_AGE)

    @routes.get(path)
    async def get_one(request: web.Request) -> web.Response:
        return shown(request, one(request))

    @routes.put(path)
    async def change(request: web.Request) -> web.Response:
        item = one(request)
        update(cloud(request), item, await body(request, model))
        return shown(request, item)

    if delete is not None:

        @routes.delete(path)
        async def remove(request: web.Request) -> web.Response:
            delete(cloud(request), one(request))
            return web.Response(status=204)


_HOUR = 3600
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class Bucket:
    """``limit`` requests an hour, all of which may be burst at once; tokens come back at a steady rate."""

    def __init__(self, limit: int, refill_per_second: float, clock: Callable[[], float]) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}; it must be at least 1 request per hour")
        if refill_per_second < 0:
            raise ValueError(f"refill_per_second is {refill_per_second}; it must not be negative")
        self.limit = limit
        self.refill_per_second = refill_per_second
        self._clock = clock
        self._tokens = float(limit)
        self._seen = clock()

    def take(self) -> bool:
        """Use up one token; False when there is none (a refused request costs nothing)."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def drain(self, remaining: int = 0) -> None:
        """Leave only ``remaining`` tokens, as if others had spent the rest."""
        self._refill()
        self._tokens = min(self._tokens, float(remaining))

    def headers(self) -> dict[str, str]:
        """The three headers of every answer; Reset is when the bucket will be full, in Unix seconds."""
        self._refill()
        missing = self.limit - self._tokens
        # A bucket that hardly fills is not full within the hour either; no client waits longer to learn that.
        seconds = min(missing / self.refill_per_second, _HOUR) if self.refill_per_second else _HOUR * bool(missing)
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(int(self._tokens)),
            "RateLimit-Reset": str(math.ceil(self._seen + seconds)),
        }

    def _refill(self) -> None:
        now = self._clock()
        # A clock that was set back must not take tokens away.
        gained = max(0.0, now - self._seen) * self.refill_per_second
        self._tokens = min(float(self.limit), self._tokens + gained)
        self._seen = now


log = logging.getLogger(__name__)


class CloudAuth(ApiMiddleware):
    """Two tokens, one bucket of requests for the project and one for requests without a valid token."""

    api = "cloud"
    prefix = "/v1"

    def __init__(
        self,
        token: str,
        read_only_token: str,
        faults: Faults,
        requests: RequestLog,
        *,
        project: Bucket,
        strangers: Bucket,
    ) -> None:
        super().__init__(faults, requests)
        self.token = token
        self.read_only_token = read_only_token
        self.project = project
        self.strangers = strangers

    def access(self, request: web.Request) -> str:
        """ "write", "read" or "" for the token of this request."""
        scheme, _dummy, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return ""
        given = token.strip().encode()
        if hmac.compare_digest(given, self.token.encode()):
            return "write"
        return "read" if hmac.compare_digest(given, self.read_only_token.encode()) else ""

    async def admit(
        self, request: web.Request, handler: Handler, fault: RequestFault | None, correlation: str
    ) -> web.StreamResponse:
        """Rate limit first, then the fault, then the token."""
        bucket = self.project if self.access(request) else self.strangers
        response = await self._respond(request, handler, bucket, fault)
        response.headers.update(bucket.headers())
        response.headers["X-Correlation-Id"] = correlation
        return response

    def refusal(self, status: int, code: str, message: str) -> web.Response:
        """An error as the Cloud API answers it."""
        return answer(ApiError(status, code, message).body(), status)

    async def _respond(
        self, request: web.Request, handler: Handler, bucket: Bucket, fault: RequestFault | None
    ) -> web.StreamResponse:
        if not bucket.take():
            return self.refusal(429, "rate_limit_exceeded", f"limit of {bucket.limit} requests per hour reached")
        if fault is not None and not fault.happens:
            return self.faulty(fault)
        response = await self._handle(request, handler)
        return response if fault is None or fault.garble else self.faulty(fault)

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            access = self.access(request)
            if not access:
                raise ApiError(401, "unauthorized", "unable to authenticate")
            if access == "read" and request.method not in _READS:
                raise ApiError(401, "token_readonly", "the token is only allowed to perform read requests")
            return await handler(request)
        except ApiError as error:
            return answer(error.body(), error.status)
        except web.HTTPMethodNotAllowed as error:
            refusal = ApiError(405, "method_not_allowed", f"{request.method} is not allowed here")
            return answer(refusal.body(), 405, {"Allow": ", ".join(sorted(error.allowed_methods))})
        except web.HTTPNotFound:
            return answer(ApiError(404, "not_found", f"no such route: {request.path}").body(), 404)
        except web.HTTPException as error:
            return answer(ApiError(error.status, "invalid_input", error.reason).body(), error.status)
        except Exception:
            log.exception("%s %s", request.method, request.path_qs)
            return answer(ApiError(500, "server_error", "internal server error").body(), 500)
