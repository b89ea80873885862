# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The Robot webservice: access, and requests, held back by its hourly limits and safely repeated.

A limit is one of a route. What counts are requests of this run and of earlier ones, and what a 403 says.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
import math
import os
import queue
import random
import re
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from .._common.safe_files import write_json
from .._common.text import counted, json_value
from .._common.web import AGENT, VERSION, is_http_url
from .api_failures import (
    AGAIN,
    FINAL,
    UNAUTHORIZED,
    ApiError,
    Backoff,
    Client,
    Deadline,
    FleetError,
    LimitSpent,
    NoAnswer,
)

try:
    import requests

    REQUESTS_IMPORT_ERROR = None
except ImportError:
    REQUESTS_IMPORT_ERROR = traceback.format_exc()

WINDOW = 3600.0
RESET = "POST /reset/{server}"

#: Requests an account may make within an hour; 500 for every route that is not named here.
HOURLY = {
    "GET /server": 200,
    "GET /server/{server}": 200,
    "POST /server/{server}": 200,
    RESET: 50,
    "POST /wol/{server}": 10,
    "POST /key": 200,
}
OTHERWISE = 500
#: Characters that are read of a file with resets.
MOST_KEPT = 1 << 20

#: Seconds to hold a route after a 403. The answer gives the length of the window, not when it ends.
HOLD = (30.0, 60.0)


def route_of(method: str, path: str) -> str:
    """The route a limit counts for, such as POST /reset/{server}."""
    parts = path.strip("/").split("/")
    if len(parts) > 1:
        parts[1] = "{fingerprint}" if parts[0] == "key" else "{server}"
    return f"{method} /{'/'.join(parts)}"


class Limits:
    """The windows of all routes. ``resets``: how many resets within an hour this run may count on."""

    def __init__(
        self, clock: Callable[[], float], resets: int = HOURLY[RESET], rng: random.Random | None = None
    ) -> None:
        self._log: ResetLog | None = None
        self._clock = clock
        self._hourly = dict(HOURLY, **{RESET: resets})
        # Spreads requests in time; nothing about it is a secret.
        self._rng = rng or random.Random()
        #: The length of a route's window, where it is not an hour.
        self._windows: dict[str, float] = {}
        self._sent: dict[str, deque[float]] = {}
        self._held_until: dict[str, float] = {}

    def keep(self, log: ResetLog) -> None:
        """Count the resets of earlier runs, too, and let later ones count those of this run."""
        self._log = log
        self._limit(RESET, *log.limit())
        for age in log.ages():
            self.sent(RESET, age)

    @property
    def kept(self) -> bool:
        """Whether the resets of earlier steps and runs are counted already."""
        return self._log is not None

    def leaves(self, route: str) -> None:
        """A request goes out now."""
        if route == RESET and self._log:
            self._log.sent()

    def hourly(self, route: str) -> int:
        return self._hourly.get(route, OTHERWISE)

    def sent(self, route: str, age: float = 0.0) -> None:
        """A request leaves, or left ``age`` seconds ago; on a held route it goes ahead alone."""
        now = self._clock()
        times = self._sent.setdefault(route, deque())
        times.append(now - age)
        if age:
            self._sent[route] = deque(sorted(times))
        if route in self._held_until:
            self._held_until[route] = now + HOLD[1]

    def taken(self, route: str) -> None:
        """A request was answered by anything but the limit."""
        self._held_until.pop(route, None)

    def refused(self, route: str, interval: float = WINDOW, most: int | None = None) -> None:
        """The answer was 403 RATE_LIMIT_EXCEEDED: others used up what our own count says is left.

        ``interval``: the length of the window, as the answer gives it; ``most``: how many requests it takes.
        """
        self._limit(route, most, interval)
        if route == RESET and self._log:
            self._log.refused(self.hourly(route), interval)
        self._held_until[route] = self._clock() + min(self._rng.uniform(*HOLD), interval)

    def held(self, route: str) -> float:
        """Seconds for which a 403 holds the route."""
        return max(0.0, self._held_until.get(route, 0.0) - self._clock())

    def delay(self, route: str) -> float:
        """Seconds until a request may be sent."""
        times, limit = self._recent(route), self.hourly(route)
        full = times[-limit] + self._window(route) - self._clock() if len(times) >= limit else 0.0
        return max(0.0, full, self.held(route))

    def left(self, route: str) -> int:
        """Requests that may be sent now, as far as this run knows."""
        return 0 if self.held(route) else max(0, self.hourly(route) - len(self._recent(route)))

    def _limit(self, route: str, most: int | None, interval: float) -> None:
        # The user's own limit of resets may be lower, and is for an hour.
        if most and (route != RESET or most < self._hourly[RESET]):
            self._hourly[route], self._windows[route] = most, interval

    def _window(self, route: str) -> float:
        return self._windows.get(route, WINDOW)

    def _recent(self, route: str) -> deque[float]:
        times = self._sent.get(route, deque())
        while times and times[0] <= self._clock() - self._window(route):
            times.popleft()
        return times


class ResetLog:
    """The resets that runs of one controller sent to an account, and the last time it was refused one, in a file.

    Nothing depends on it but how many resets a run counts on: what cannot be read or written is left out.
    """

    def __init__(self, folder: str, account: str, now: Callable[[], float] = time.time) -> None:
        digest = hashlib.sha256(account.encode("utf-8", "surrogateescape")).hexdigest()
        self._path = os.path.join(folder, f".robot-resets-{digest[:16]}")
        self._now = now

    def ages(self) -> list[float]:
        """Seconds since each reset that may still count. After a refusal, as many count as the API said.

        When they were sent it does not say: they are taken to lie evenly in the window before.
        """
        kept, now = self._read(), self._now()
        ages = [now - at for at in kept["sent"]]
        at, most, interval = kept["refused"] or (0, 0, 0)
        if 0 <= now - at < interval:
            ages = [age for age in ages if age < now - at]
            ages += [now - at + interval * number / most for number in range(most)]
        return sorted(age for age in ages if 0 <= age < WINDOW)

    def limit(self) -> tuple[int | None, float]:
        """How many resets a window takes and how long it is, as the last refusal said that still counts; else None."""
        at, most, interval = self._read()["refused"] or (0, 0, 0)
        return (most, interval) if 0 <= self._now() - at < interval else (None, WINDOW)

    def sent(self) -> None:
        """A reset is sent now."""
        self._change(lambda kept: kept["sent"].append(self._now()))

    def refused(self, most: int, interval: float) -> None:
        """It was refused: the window holds ``most`` resets, of this account's users together."""
        self._change(lambda kept: kept.update(refused=[self._now(), most, interval]))

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                return self._parse(json_value(file.read(MOST_KEPT)))
        except (OSError, ValueError):
            return {"sent": [], "refused": None}

    def _parse(self, found: Any) -> dict[str, Any]:
        kept = found if isinstance(found, dict) else {}
        sent = kept.get("sent")
        times = [at for at in sent if _is_number(at)] if isinstance(sent, list) else []
        recent = [at for at in times if 0 <= self._now() - at < WINDOW]
        return {"sent": recent, "refused": _refusal(kept.get("refused"))}

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path + ".lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                kept = self._read()
                change(kept)
                write_json(self._path, kept, durable=False)


def _refusal(value: Any) -> list[float] | None:
    """When it was, how many requests the window takes, and its length; None when it is none."""
    if not isinstance(value, list) or len(value) != 3 or not all(map(_is_number, value)):
        return None
    _at, most, interval = value
    return value if isinstance(most, int) and 0 < most <= 10000 and 0 < interval <= 24 * WINDOW else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class ResetPlan:
    """Whether ``count`` resets fit into the hour, and the arithmetic in words."""

    def __init__(self, count: int, left: int, hourly: int) -> None:
        self.fits = count <= left
        self.hours = 0 if self.fits or hourly < 1 else -(-(count - left) // hourly)
        self.message = (
            f"{counted(count, 'machine')} {'needs' if count == 1 else 'need'} a reset by the Robot API, "
            f"which takes {hourly} an hour; {left} can be sent now"
        )
        if not self.fits:
            late = f"within about {self.hours} h" if hourly else "never, with max_resets 0"
            self.message += f", and the other {count - left} {late}"


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
        super().__init__("endpoint", endpoint.rstrip("/"), clock, sleep)
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
            self._has_answered = True
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
        return self._repeated(lambda: self.request("GET", path, deadline, machine=machine), deadline)

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
        """Send a request that changes something, as `Client._carried_out` does."""
        return self._carried_out(
            lambda: self.request(method, path, deadline, machine=machine, data=data), look, deadline
        )

    def _verdict(self, error: ApiError | NoAnswer) -> str:
        if is_limit(error):
            return AGAIN
        return FINAL if getattr(error, "code", None) in _CALLER_DECIDES else super()._verdict(error)

    def _pause_after(self, error: ApiError | NoAnswer, backoff: Backoff, deadline: Deadline) -> str:
        # How long a limit makes us wait is the limits' business: the next request waits for them.
        return AGAIN if is_limit(error) else super()._pause_after(error, backoff, deadline)

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
