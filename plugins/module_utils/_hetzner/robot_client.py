# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The Robot webservice: access, and requests, counted, held back by its limits and safely repeated."""

from __future__ import annotations

import ipaddress
import os
import queue
import re
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import missing_required_lib

from .._common.web import AGENT, VERSION, is_http_url
from .api_failures import (
    AGAIN,
    FINAL,
    UNAUTHORIZED,
    ApiError,
    Backoff,
    Client,
    FleetError,
    LimitSpent,
    NoAnswer,
    verdict,
)
from .robot_limits import HOURLY, RESET, WINDOW, Limits, ResetLog, route_of

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

    from .api_failures import Deadline


try:
    import requests

    REQUESTS_IMPORT_ERROR = None
except ImportError:
    REQUESTS_IMPORT_ERROR = traceback.format_exc()

DEFAULT_ENDPOINT = "https://robot-ws.your-server.de"
#: Requests on their way at the same time: always fewer than the failed logins that lock this address out.
CONCURRENCY = 2
#: Seconds for the connection, and for each read.
TIMEOUT = (10, 60)

_LONGEST_WINDOW = 24 * WINDOW
#: An error of the hardware, not of the webservice: what to do about it is decided where the request was made.
_CALLER_DECIDES = frozenset(["RESET_FAILED", "WOL_FAILED"])
_WORD = re.compile(r"^[^\x00-\x1f\x7f]+\Z")


def robot_options() -> dict[str, Any]:
    """The argument spec of the documentation fragment ``hetzner.robot``."""
    return {
        "robot_user": {"type": "str"},
        "robot_password": {"type": "str", "no_log": True},
        "endpoint": {"type": "str"},
        "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    }


def robot_access(params: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> tuple[str, str, str]:
    """User, password and endpoint from the parameters or the environment; raises FleetError for what cannot work."""
    environment = os.environ if environment is None else environment
    user = (params.get("robot_user") or environment.get("HROBOT_API_USER") or "").strip()
    password = params.get("robot_password") or environment.get("HROBOT_API_PASSWORD") or ""
    endpoint = params.get("endpoint") or environment.get("HROBOT_ENDPOINT") or DEFAULT_ENDPOINT
    for field, variable, value in (
        ("robot_user", "HROBOT_API_USER", user),
        ("robot_password", "HROBOT_API_PASSWORD", password),
    ):
        if not value:
            raise FleetError(f"{field}: missing; set the option or the environment variable {variable}")
        if not _WORD.match(value):
            raise FleetError(f"{field}: contains line breaks or characters that no credentials have; copy it again")
    if ":" in user:
        raise FleetError("robot_user: contains a colon, which no webservice user has; copy it again")
    _check_endpoint(endpoint)
    return user, password, endpoint


def open_robot(resets: int = HOURLY[RESET], pace: bool = False) -> Callable[[AnsibleModule], Robot]:
    """How run_fleet opens the Robot webservice."""

    def open_api(module: AnsibleModule) -> Robot:
        if REQUESTS_IMPORT_ERROR is not None:
            module.fail_json(msg=missing_required_lib("requests"), exception=REQUESTS_IMPORT_ERROR)
        user, password, endpoint = robot_access(module.params)
        # Ansible masks the values of options; this one may come from the environment.
        module.no_log_values.add(password)
        limits = Limits(time.monotonic, resets=resets)
        if module.params.get("intents_dir"):
            limits.keep(ResetLog(module.params["intents_dir"], f"{user}@{endpoint}"))
        return Robot(user, password, endpoint, limits=limits, patient=pace)

    return open_api


def _check_endpoint(endpoint: str) -> None:
    address = urlsplit(endpoint) if is_http_url(endpoint) else None
    if address is None or address.username or address.query:
        raise FleetError(
            f"endpoint: not the address of a webservice, or with a user in it; use something like {DEFAULT_ENDPOINT}"
        )
    if address.scheme == "http" and not _is_loopback(address.hostname):
        raise FleetError("endpoint: http would send the password readable for everybody in between; use https")


def _is_loopback(host: str | None) -> bool:
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


class Robot(Client):
    """One account.

    ``patient``: wait for resets as long as the hourly limit takes, also beyond the time limit of the step.
    """

    def __init__(
        self,
        user: str,
        password: str,
        endpoint: str = DEFAULT_ENDPOINT,
        limits: Limits | None = None,
        patient: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        super().__init__("endpoint", self._endpoint, clock, sleep)
        #: requests takes bytes, too, and would encode a str as Latin-1.
        self._auth: Any = (user.encode("utf-8"), password.encode("utf-8"))
        self._patient = patient
        self._sessions: queue.Queue[requests.Session] = queue.Queue()
        for _number in range(CONCURRENCY):
            self._sessions.put(requests.Session())
        self.limits = limits or Limits(clock)

    def request(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        machine: str | None = None,
        data: Any = None,
        reserved: bool = False,
    ) -> Any:
        """Send one request, once, as soon as its limit allows. Raises ApiError, NoAnswer, LimitSpent or FleetError.

        ``reserved``: the request was counted by reserve() before.
        """
        route = route_of(method, path)
        session = self._enter(route, deadline, reserved)
        try:
            with self._lock:
                # Asked last: a session is given back after its answer was judged, so no thread logs in after a 401.
                self._raise_if_stopped()
                self._count(machine)
                self.limits.leaves(route)
            response = session.request(
                method,
                self._endpoint + path,
                data=data,
                auth=self._auth,
                timeout=TIMEOUT,
                allow_redirects=False,
                headers={"Accept": "application/json", "User-Agent": f"{AGENT}/{VERSION}"},
            )
            self._first.came()
            return self._judge(response, route, f"{method} {path}")
        except requests.exceptions.RequestException as error:
            if "CERTIFICATE_VERIFY_FAILED" in repr(error):
                fatal = FleetError(f"endpoint: the certificate of {self._endpoint} is not trusted; check the address")
                self.stop(fatal)
                raise fatal from error
            raise self._unanswered(error, f"{method} {path}") from error
        finally:
            self._sessions.put(session)

    def _enter(self, route: str, deadline: Deadline, reserved: bool) -> requests.Session:
        """A session to send a request with; a thread that waited for one while its route was held waits again."""
        while True:
            self.reserve(route, deadline, count=not reserved)
            session = self._sessions.get()
            with self._lock:
                if not reserved or self.limits.held(route) <= 0:
                    return session
            self._sessions.put(session)

    def reserve(self, route: str, deadline: Deadline, count: bool = True) -> None:
        """Wait until a request of this route may be sent, and count it; not ``count``: it was counted before."""
        while True:
            with self._lock:
                self._raise_if_stopped()
                delay = self.limits.delay(route) if count else self.limits.held(route)
                if delay <= 0:
                    if count:
                        self.limits.sent(route)
                    return
                hourly = self.limits.hourly(route)
            if delay > deadline.left() and not (self._patient and route == RESET):
                pace = ", or set on_reset_limit to pace" if route == RESET else ""
                raise LimitSpent(
                    f"Robot's limit of {hourly} requests an hour for {route} is used up, by this run or by others with "
                    f"the same account; that is not this machine's fault. Run again in up to an hour{pace}"
                )
            self._sleep(min(delay, 5.0))

    def read(self, path: str, deadline: Deadline, machine: str | None = None) -> Any:
        """GET, repeated with growing pauses until it succeeds, fails permanently, or ``deadline`` passes."""
        backoff = Backoff()
        while True:
            try:
                return self.request("GET", path, deadline, machine=machine)
            except (ApiError, NoAnswer) as error:
                self._pause_after(error, backoff, deadline)

    def read_list(self, path: str, key: str, deadline: Deadline) -> list[dict[str, Any]]:
        """The items of a list without their wrappers; Robot answers 404 for an empty one."""
        try:
            body = self.read(path, deadline)
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        items = [item.get(key) for item in body if isinstance(item, dict)] if isinstance(body, list) else [None]
        found = [item for item in items if isinstance(item, dict)]
        if len(found) < len(items):
            raise FleetError(f"Robot's answer to GET {path} is no list of '{key}'; check the endpoint")
        return found

    def change(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        look: Callable[[], Any],
        machine: str | None = None,
        data: Any = None,
    ) -> Any:
        """Send a request that changes something, repeated only when that is safe.

        When it is unclear whether the request was carried out, ``look()`` reads the state: it returns the body the
        lost answer would have had, or None when nothing happened and the request may be sent again.
        """
        backoff = Backoff()
        while True:
            try:
                return self.request(method, path, deadline, machine=machine, data=data)
            except (ApiError, NoAnswer) as error:
                if self._pause_after(error, backoff, deadline) != AGAIN:
                    found = look()
                    if found is not None:
                        return found

    def _pause_after(self, error: ApiError | NoAnswer, backoff: Backoff, deadline: Deadline) -> str:
        """Pause after an error that will pass, raise any other one; returns its verdict."""
        if is_limit(error):
            # How long to wait is the limits' business: the next request waits for them.
            return AGAIN
        judgement = FINAL if getattr(error, "code", None) in _CALLER_DECIDES else verdict(error)
        if judgement == FINAL:
            raise error
        deadline.sleep(self._first.pause(backoff.pause()), str(error))
        return judgement

    def _judge(self, response: requests.Response, route: str, what: str) -> Any:
        body = _json_of(response)
        if 200 <= response.status_code < 300:
            with self._lock:
                self.limits.taken(route)
            if body is None:
                raise NoAnswer(f"the answer to {what} is not JSON", sent=True)
            return body
        error = error_of(response.status_code, response.reason, body)
        if error.status == 401:
            fatal = FleetError(UNAUTHORIZED)
            self.stop(fatal)
            raise fatal
        with self._lock:
            if is_limit(error):
                self.limits.refused(route, _interval_of(body), _most_of(body))
            else:
                self.limits.taken(route)
        raise error


def part(body: Any, key: str) -> dict[str, Any] | None:
    """The dictionary that an answer has under a key; None when the answer has another form."""
    found = body.get(key) if isinstance(body, dict) else None
    return found if isinstance(found, dict) else None


def items(value: Any) -> list[Any]:
    """A list of an answer; empty when it is none."""
    return value if isinstance(value, list) else []


def is_limit(error: Exception) -> bool:
    """Whether Robot refused a request because of its hourly limit."""
    return isinstance(error, ApiError) and (error.code == "RATE_LIMIT_EXCEEDED" or error.status == 429)


def error_of(status: int, reason: str | None, body: Any) -> ApiError:
    """The ApiError that an answer means, also when a proxy in between wrote the body."""
    try:
        error = body["error"]
        code, message = str(error["code"]), error["message"]
    except (KeyError, TypeError):
        return ApiError(status, f"http_{status}", reason or "no reason given")
    fields = [
        {"name": str(name), "messages": [kind]} for kind in ("missing", "invalid") for name in items(error.get(kind))
    ]
    return ApiError(status, code, message, {"fields": fields})


def _most_of(body: Any) -> int | None:
    """How many requests a window takes, as a 403 says; None when it does not."""
    error = part(body, "error") or {}
    # The documented name, and the one that was seen.
    found = [error.get(name) for name in ("max_request", "max_requests")]
    return next((most for most in found if isinstance(most, int) and not isinstance(most, bool) and most > 0), None)


def _interval_of(body: Any) -> float:
    """The length of the window in seconds that a 403 gives; the usual one when it gives none."""
    try:
        interval = body["error"]["interval"]
    except (KeyError, TypeError):
        return WINDOW
    whole = isinstance(interval, int) and not isinstance(interval, bool)
    return float(interval) if whole and 1 <= interval <= _LONGEST_WINDOW else WINDOW


def _json_of(response: requests.Response) -> Any:
    if not response.content:
        return {}
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None
