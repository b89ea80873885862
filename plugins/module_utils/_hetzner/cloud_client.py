# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The Cloud API: access, requests, counted and safely repeated, and a model of the project's token bucket (pure)."""

from __future__ import annotations

import functools
import math
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from .._common.text import whole_number
from .._common.web import AGENT, VERSION, is_http_url
from .api_failures import CREDENTIAL_CODES, ApiError, Client, Deadline, FleetError, NoAnswer

#: The bucket refills completely within this many seconds.
WINDOW = 3600.0
#: What comes back is shared with others: after a refusal half as much of it is used as before, down to the least share,
#: and a little more with each answer.
LEAST_SHARE, SHARE_GROWS = 1 / 8, 1 / 128


class Plan(NamedTuple):
    """Whether a piece of work fits into the budget: ``fits`` at once, ``possible`` with pacing, or not at all."""

    fits: bool
    possible: bool
    message: str


class Budget:
    """Follows ``RateLimit-*`` headers; between two answers it counts what was sent and what came back by time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.limit: int | None = None
        self._remaining = 0.0
        self._at = 0.0
        self._in_flight = 0
        self._answers = 0
        self._share = 1.0
        self._answers_at_refusal = 0

    @property
    def known(self) -> bool:
        return self.limit is not None

    @property
    def per_second(self) -> float:
        """Requests that come back each second."""
        return (self.limit or WINDOW) / WINDOW

    def remaining(self) -> float:
        """Requests that may be sent right now; infinite as long as nothing is known."""
        if self.limit is None:
            return math.inf
        return min(float(self.limit), self._remaining + self._came_back())

    def sent(self) -> int:
        """A request leaves; what is returned belongs to its answer."""
        if self.known:
            self._set(self._ours() - 1)
        self._in_flight += 1
        return self._answers

    def answered(self, headers: Mapping[str, str], mark: int) -> None:
        """An answer, or none (an empty mapping), came back; ``mark`` is what `sent` returned for its request.

        Its headers are right but for what the API took after it: requests that are still on their way, and those that
        were answered meanwhile, since answers overtake each other.
        """
        overtook = self._answers - mark
        self._answers += 1
        self._in_flight = max(0, self._in_flight - 1)
        limit, remaining = (
            whole_number((headers.get("RateLimit-" + name) or "").strip()) for name in ("Limit", "Remaining")
        )
        if not limit or remaining is None:
            return
        self.limit = limit
        self._share = min(1.0, self._share + SHARE_GROWS)
        self._set(min(remaining, limit) - self._in_flight - overtook)

    def exhausted(self, mark: int) -> None:
        """The API said that there is nothing left; ``mark`` is that of the request that it refused.

        Then another controller uses what comes back, too. If both took the next one that is due, one of them would be
        refused each time.
        """
        if not self.known:
            self.limit = int(WINDOW)
        if mark >= self._answers_at_refusal:  # sent after the last refusal
            self._share = max(LEAST_SHARE, self._share / 2)
            self._answers_at_refusal = self._answers
        self._set(min(0.0, self._ours()))

    def delay(self) -> float:
        """Seconds until one more request may be sent."""
        missing = 1 - self._ours()
        return max(0.0, missing / (self.per_second * self._share)) if self.known else 0.0

    def _came_back(self) -> float:
        """Requests that came back since the last request or answer."""
        return (self._clock() - self._at) * self.per_second

    def _ours(self) -> float:
        """Requests that this controller may send right now, when others use their share of those that come back."""
        return min(self.remaining(), self._remaining + self._came_back() * self._share)

    def plan(self, requests: int, seconds: float, what: str) -> Plan:
        """Judge ``requests`` more requests to be sent within ``seconds``; ``what`` names the work in the message."""
        if self.limit is None:
            return Plan(True, True, f"{what}: about {requests} API requests; the API did not tell its limit")
        left = max(0, math.floor(self.remaining()))
        reachable = left + math.floor(seconds * self.per_second)
        need = f"{what} needs about {requests} API requests, {left} of {self.limit} are left"
        if requests <= left:
            return Plan(True, True, need)
        wait = math.ceil((requests - left) / self.per_second)
        refill = f"and {self.per_second:.2f} come back each second"
        if requests <= reachable:
            return Plan(False, True, f"{need} {refill}: paced, this costs about {wait} s")
        return Plan(
            False,
            False,
            f"{need} {refill}, so only {reachable} can be made within {int(seconds)} s. Wait about "
            f"{wait - math.floor(seconds)} s, name fewer machines, or raise the time limit.",
        )

    def outlook(self, requests: int, what: str, at_once: int, seconds_each: float) -> str:
        """How long ``requests`` more requests take, or fewer, for people; ``seconds_each``: how long one took.

        What the platform does with them takes its own time, which is not known.
        """
        text = f"{what}: at most {requests} API requests, {at_once} at a time"
        if self.limit is None:
            return text
        left = max(0, math.floor(self.remaining()))
        waits = max(0, requests - left) / self.per_second
        if waits:
            text += ", slowed down for the limit"
        seconds = max(waits, requests * seconds_each / at_once)
        duration = f"{math.ceil(seconds)} s" if seconds <= 90 else f"{math.ceil(seconds / 60)} min"
        rest = f"at least {left - requests}" if left > requests else "0"
        return f"{text}; they take about {duration}; {rest} of {self.limit} an hour will be left"

    def _set(self, remaining: float) -> None:
        self._remaining, self._at = float(remaining), self._clock()


try:
    import hcloud
    import requests

    HCLOUD_IMPORT_ERROR = None
except ImportError:
    HCLOUD_IMPORT_ERROR = traceback.format_exc()

DEFAULT_ENDPOINT = "https://api.hetzner.cloud/v1"
#: Requests on their way at the same time.
CONCURRENCY = 8
#: Seconds for the connection, and for each read.
TIMEOUT = (10, 60)
PER_PAGE = 50

_TOKEN = re.compile(r"^[\x21-\x7e]+\Z")


def api_options() -> dict[str, Any]:
    """The argument spec of the documentation fragment ``hetzner.hcloud``."""
    return {
        "api_token": {"type": "str", "no_log": True},
        "api_endpoint": {"type": "str"},
        "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    }


def cloud_access(params: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The token and endpoint from the parameters or the environment; raises FleetError for what cannot work."""
    environment = os.environ if environment is None else environment
    token = (params.get("api_token") or environment.get("HCLOUD_TOKEN") or "").strip()
    endpoint = params.get("api_endpoint") or environment.get("HCLOUD_ENDPOINT") or DEFAULT_ENDPOINT
    if not token:
        raise FleetError("api_token: missing; set the option or the environment variable HCLOUD_TOKEN")
    if not _TOKEN.match(token):
        raise FleetError("api_token: contains blanks or characters that no token has; copy it again")
    if not is_http_url(endpoint):
        raise FleetError(f"api_endpoint: '{endpoint}' is no address of an API; use something like {DEFAULT_ENDPOINT}")
    return token, endpoint


def open_cloud(module: AnsibleModule) -> Api:
    """The Cloud API with the credentials of the module's parameters or of the environment; raises FleetError."""
    if HCLOUD_IMPORT_ERROR is not None:
        module.fail_json(msg=missing_required_lib("hcloud"), exception=HCLOUD_IMPORT_ERROR)
    token, endpoint = cloud_access(module.params)
    # Ansible masks the values of options; this one may come from the environment.
    module.no_log_values.add(token)
    return Api(token, endpoint)


class Api(Client):
    """One project's API."""

    def __init__(
        self,
        token: str,
        endpoint: str = DEFAULT_ENDPOINT,
        timeout: tuple[float, float] = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__("api_endpoint", endpoint, clock, sleep)
        self._client = hcloud.Client(
            token=token,
            api_endpoint=endpoint.rstrip("/"),
            application_name=AGENT,
            application_version=VERSION,
            timeout=timeout,
        )
        _without_retries(self._client)
        self._slots = threading.BoundedSemaphore(CONCURRENCY)
        self._server_clock: float | None = None
        self.budget = Budget(clock)
        #: Seconds for which requests were under way, of all together.
        self._took = 0.0

    def request(
        self, method: str, path: str, machine: str | None = None, params: dict[str, Any] | None = None, json: Any = None
    ) -> dict[str, Any]:
        """Send one request, once. Raises ApiError, NoAnswer or FleetError."""
        arguments = {}
        if params is not None:
            arguments["params"] = params
        if json is not None:
            arguments["json"] = json
        with self._slots:
            mark = self._pace(machine)
            arguments["hooks"] = {"response": functools.partial(self._answered, mark, self._clock())}
            try:
                return self._client.request(method, path, **arguments)
            except (hcloud.APIException, RecursionError) as error:
                # Only a success whose body is no JSON gets here, errors are raised by the hook.
                raise NoAnswer(f"the answer to {method} {path} is not JSON ({error})", sent=True) from error
            except requests.exceptions.RequestException as error:
                with self._lock:
                    self.budget.answered({}, mark)
                raise self._unanswered(error, f"{method} {path}") from error

    def read(
        self, path: str, deadline: Deadline, machine: str | None = None, params: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """GET, repeated with growing pauses until it succeeds, fails permanently, or ``deadline`` passes."""
        return self._repeated(lambda: self.request("GET", path, machine=machine, params=params), deadline)

    def read_all(
        self,
        path: str,
        key: str,
        deadline: Deadline,
        machine: str | None = None,
        params: dict[str, Any] | None = None,
        enough: Callable[[list[Any], int], bool] | None = None,
    ) -> tuple[list[Any], bool]:
        """All pages of a list; ``enough(items, pages_left)`` may end it early. Returns (items, complete)."""
        items: list[Any] = []
        page = 1
        while True:
            query = dict(params or {}, page=page, per_page=PER_PAGE)
            body = self.read(path, deadline, machine=machine, params=query)
            items.extend(body.get(key) or [])
            pagination = (body.get("meta") or {}).get("pagination") or {}
            following = pagination.get("next_page")
            if not following:
                return items, True
            if enough is not None and enough(items, (pagination.get("last_page") or following) - page):
                return items, False
            page = following

    def change(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        look: Callable[[float | None], dict[str, Any] | None],
        machine: str | None = None,
        json: Any = None,
        locked: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Send a request that changes something, as `Client._carried_out` does.

        ``sent_at``, which ``look`` takes, is the API's own clock in epoch seconds before the request, or None.
        """
        sent_at: float | None = None

        def send() -> dict[str, Any]:
            nonlocal sent_at
            sent_at = self.server_time()
            return self.request(method, path, machine=machine, json=json)

        return self._carried_out(send, lambda: look(sent_at), deadline, locked)

    def server_time(self) -> float | None:
        """The API's clock (epoch seconds) as far as its answers gave it, else None."""
        with self._lock:
            return None if self._server_clock is None else self._server_clock + self._clock()

    def announce(self, requests: int, what: str) -> None:
        """Show what is ahead, where progress is shown."""
        if self.news is not None:
            with self._lock:
                self.news.plan(self.budget.outlook(requests, what, CONCURRENCY, self._took / max(1, self.calls)))

    def _pace(self, machine: str | None) -> int:
        while True:
            with self._lock:
                self._raise_if_stopped()
                delay = self.budget.delay()
                if delay <= 0:
                    self._count(machine)
                    return self.budget.sent()
            self._sleep(min(delay, 5.0))

    def _answered(self, mark: int, sent: float, response: requests.Response, **_kwargs: Any) -> None:
        """Runs for every answer before the library looks at it: reads the headers, raises our errors."""
        self._has_answered = True
        with self._lock:
            self.budget.answered(response.headers, mark)
            self._took += self._clock() - sent
            self._read_clock(response.headers.get("Date"))
        if response.ok:
            return
        error = _error_of(response)
        if error.status == 429 or error.code == "rate_limit_exceeded":
            with self._lock:
                self.budget.exhausted(mark)
        if error.status in (401, 403) and error.code in CREDENTIAL_CODES:
            fatal = FleetError(CREDENTIAL_CODES[error.code])
            self.stop(fatal)
            raise fatal
        raise error

    def _read_clock(self, date: str | None) -> None:
        try:
            self._server_clock = parsedate_to_datetime(date or "").timestamp() - self._clock()
        except (TypeError, ValueError, IndexError, OverflowError):
            return


def _without_retries(client: Any) -> None:
    """The library repeats requests blindly after a timeout; whether that is safe is decided in change() instead."""
    holders: list[Any] = [client, getattr(client, "_client", None)]
    for holder in holders:
        if hasattr(holder, "_retry_max_retries"):
            holder._retry_max_retries = 0


def _error_of(response: requests.Response) -> ApiError:
    """The ApiError that an answer means, also when a proxy in between wrote the body."""
    try:
        error = response.json()["error"]
        code, message, details = str(error["code"]), error["message"], error.get("details")
    except (ValueError, KeyError, TypeError, RecursionError):
        code, message, details = f"http_{response.status_code}", response.reason or "no reason given", None
    return ApiError(response.status_code, code, message, details, response.headers.get("X-Correlation-Id"))
