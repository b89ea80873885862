# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong between us and the APIs, sorted by whom it concerns; and what to do about it.

A request that did not succeed is made again, after a while and until a limit, or it is not.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .._common.own_run import ENDED, OwnRun
from .._common.text import spaced

#: Answers that concern the credentials, hence the whole fleet.
CREDENTIAL_CODES = {
    "unauthorized": (
        "api_token: the API refused the token (unauthorized). Check that it is complete, belongs to the right project "
        "and was not revoked."
    ),
    "token_readonly": (
        "api_token: the token may only read (token_readonly). Make a token with read and write permission for this "
        "project; nothing was changed by this request."
    ),
    "forbidden": "api_token: the token lacks the permission for this request (forbidden).",
}

_Answer = TypeVar("_Answer")
#: characters of a message that are kept
_MOST = 4000


class ApiError(Exception):
    """The API answered with an error."""

    #: Of a request that changes something: none of its tries can have been carried out.
    refused = False

    def __init__(
        self, status: int, code: str, message: object, details: object = None, correlation_id: str | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.message = spaced(message, _MOST)
        self.details = details if isinstance(details, dict) else {}
        self.correlation_id = correlation_id
        super().__init__(self.describe())

    def describe(self) -> str:
        """The error in one line: message, code, fields and the id support asks for."""
        fields = [
            f"{field.get('name')}: {', '.join(field.get('messages') or ['not accepted'])}"
            for field in self.details.get("fields") or []
            if isinstance(field, dict)
        ]
        parts = [str(self.code)] + ([f"request {self.correlation_id}"] if self.correlation_id else [])
        text = f"{self.message} ({', '.join(parts)})"
        return spaced(f"{text} [{'; '.join(fields)}]" if fields else text, _MOST)


class NoAnswer(Exception):
    """The request got no answer; ``sent`` says whether the API may have received it."""

    def __init__(self, reason: object, sent: bool) -> None:
        self.sent = sent
        super().__init__(spaced(reason, _MOST))


class FleetError(Exception):
    """Concerns every machine: the module fails."""


def raise_if_ended(run: OwnRun | None) -> None:
    """Raise FleetError when the run that all this is done for was killed; None: it cannot be seen."""
    if run is not None and run.has_ended:
        raise FleetError(ENDED)


class MachineError(Exception):
    """Concerns one machine: it failed. ``permanent``: a retry cannot help. ``refused``: as of ApiError."""

    permanent = False
    refused = False


class Refused(MachineError):
    """One machine was left exactly as it was, because going on would have been wrong or dangerous."""

    refused = True


class TimeLimit(MachineError):
    """One machine did not get there in time."""


UNAUTHORIZED = (
    "Robot refused the credentials (401), so nothing more was sent. Check robot_user and robot_password, or "
    "HROBOT_API_USER and HROBOT_API_PASSWORD: they are those of the webservice user (#ws+…) made in Robot's settings, "
    "not those of the login. After 3 failed logins Robot blocks this address for 10 minutes, and then refuses right "
    "credentials too."
)


class Permanent(MachineError):
    """One machine failed, and a retry cannot help."""

    permanent = True


class LimitSpent(Refused):
    """The hourly limit of a route is used up: not this machine's fault, and it was left as it is."""


class EndedEarly(Exception):
    """The work on one machine ended before it was in its rescue, and that is no failure; the text says why."""


class HandedBack(EndedEarly):
    """The rescue has not come yet, and a later step waits for it."""


class LeftAlone(EndedEarly):
    """A system answers that must not be reset; the text says which."""


#: It was certainly not carried out: send it again after a pause.
AGAIN = "again"
#: It may have been carried out: look before sending it again.
LOOK_FIRST = "look_first"
#: It never will succeed as it is.
FINAL = "final"

#: Seconds between two looks at a machine that boots.
LOOK_EVERY = 2.0

#: Seconds for which the very first answer of an API is waited for.
FIRST_ANSWER_TAKES = 20.0

#: What the system says of a connection, somewhere in an error of requests.
_ERRNO = re.compile(r"\[Errno -?[0-9]{1,5}\] [A-Za-z ,.'-]{1,80}")

#: Something else is being done to the object at this moment.
LOCKED_CODES = frozenset(["locked", "resource_locked"])
_AGAIN_CODES = LOCKED_CODES | frozenset(["rate_limit_exceeded", "conflict"])
_UNCLEAR_CODES = frozenset(["unavailable", "bad_gateway", "timeout", "server_error", "unknown_error"])


def verdict(error: Exception) -> str:
    """AGAIN, LOOK_FIRST or FINAL for an ApiError or a NoAnswer."""
    if isinstance(error, NoAnswer):
        return LOOK_FIRST if error.sent else AGAIN
    if not isinstance(error, ApiError):
        return FINAL
    if error.code in _AGAIN_CODES or error.status == 429:
        return AGAIN
    if error.code in _UNCLEAR_CODES or error.status >= 500:
        return LOOK_FIRST
    return FINAL


def unless_gone(request: Callable[[], _Answer]) -> _Answer | None:
    """The answer of a request to the Cloud API; None when what it is about is not there, or not any more."""
    try:
        return request()
    except ApiError as error:
        if error.code == "not_found":
            return None
        raise


def may_have_arrived(error: Exception) -> bool:
    """Whether the API can have received a request that ended with this error of requests: not without a connection."""
    text = repr(error)
    return not any(name in text for name in ("ConnectTimeout", "NewConnectionError", "NameResolutionError", "SSLError"))


def transport_reason(error: Exception) -> str:
    """An error of requests in a few words, with the system's own where it has some; the address is no part of it."""
    found = _ERRNO.search(repr(error))
    kind = type(error).__name__
    return f"{kind} ({found.group().strip(' .,')})".replace("'", "") if found else kind


class Tries:
    """All tries of one request that changes something; an error that leaves it says whether it was ``refused``.

    Tries within tries: the outer ones learn of an error of the inner ones only what they are given.
    """

    def __init__(self) -> None:
        self._unclear = False

    def __enter__(self) -> Tries:
        return self

    def may_have_been_carried_out(self) -> None:
        """The outcome of a try is not known; what later ones say does not change that."""
        self._unclear = True

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, (ApiError, MachineError)):
            error.refused = not self._unclear


class Backoff:
    """Growing pauses, with jitter so that the machines of a fleet do not come back all at once."""

    def __init__(
        self, first: float = 1.0, factor: float = 1.6, cap: float = 15.0, rng: random.Random | None = None
    ) -> None:
        self._next = first
        self._factor = factor
        self._cap = cap
        # Spreads requests in time; nothing about it is a secret.
        self._rng = rng or random.Random()

    def pause(self) -> float:
        """Seconds to wait before the next try: between half and all of a length that grows up to the cap."""
        whole = self._next
        self._next = min(self._cap, self._next * self._factor)
        return whole * (0.5 + self._rng.random() / 2)


class Client:
    """What the clients of both APIs share, for many threads. ``option``: that of the module which gave the endpoint."""

    def __init__(self, option: str, endpoint: str, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._option, self._endpoint = option, endpoint
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._stopped: FleetError | None = None
        #: Whether the API has answered, with anything; and when it was missed first.
        self._has_answered = False
        self._missed_since: float | None = None
        #: Requests so far, of all and of each machine.
        self.calls = 0
        self.calls_of: dict[str, int] = {}
        #: Takes the changes of machines, if anything does; see run_fleet.
        self.news: Any = None
        #: The run that all this is done for, where that can be seen.
        self.own_run: OwnRun | None = None

    def stop(self, error: FleetError) -> None:
        """Let every further request of any thread raise ``error``."""
        with self._lock:
            self._stopped = self._stopped or error

    def _raise_if_stopped(self) -> None:
        if self._stopped is not None:
            raise self._stopped
        raise_if_ended(self.own_run)

    def _count(self, machine: str | None) -> None:
        self.calls += 1
        if machine is not None:
            self.calls_of[machine] = self.calls_of.get(machine, 0) + 1
        if self.news is not None:
            self.news.requests(self.calls)

    def _unanswered(self, error: Exception, what: str) -> NoAnswer:
        """What an error of requests means for ``what``, such as GET /servers.

        An API that never answered is not waited for as long as another one: that raises what ends the whole fleet.
        """
        sent = may_have_arrived(error)
        if not self._has_answered and not sent:
            now = self._clock()
            self._missed_since = now if self._missed_since is None else self._missed_since
            if now - self._missed_since >= FIRST_ANSWER_TAKES:
                fatal = FleetError(
                    f"{self._option}: {self._endpoint} cannot be reached, for {FIRST_ANSWER_TAKES:.0f} s: "
                    f"{transport_reason(error)}. Nothing was changed. Look at the network of this controller, its "
                    "proxy (HTTPS_PROXY, NO_PROXY) and the address, and run again"
                )
                self.stop(fatal)
                raise fatal from error
        return NoAnswer(f"no answer to {what}: {transport_reason(error)}", sent=sent)

    def _verdict(self, error: ApiError | NoAnswer) -> str:
        return verdict(error)

    def _pause_after(self, error: ApiError | NoAnswer, backoff: Backoff, deadline: Deadline) -> str:
        """Pause after an error that will pass, raise any other one; returns its verdict."""
        judgement = self._verdict(error)
        if judgement == FINAL:
            raise error
        pause = backoff.pause()
        if not self._has_answered and self._missed_since is not None:
            pause = min(pause, LOOK_EVERY)
        deadline.sleep(pause, str(error))
        return judgement

    def _repeated(self, send: Callable[[], _Answer], deadline: Deadline) -> _Answer:
        """The answer to a request that changes nothing, sent until it succeeds or never will, or time is up."""
        backoff = Backoff()
        while True:
            try:
                return send()
            except (ApiError, NoAnswer) as error:
                self._pause_after(error, backoff, deadline)

    def _carried_out(
        self,
        send: Callable[[], _Answer],
        look: Callable[[], _Answer | None],
        deadline: Deadline,
        locked: Callable[[], None] | None = None,
    ) -> _Answer:
        """The answer to a request that changes something, sent again only when that is safe.

        When it is unclear whether it was carried out, ``look()`` reads the state: it returns the body that the lost
        answer would have had, or None when nothing happened and it may be sent again. ``locked()`` is called when
        something else is being done to the object.
        """
        backoff = Backoff()
        with Tries() as tries:
            while True:
                try:
                    return send()
                except (ApiError, NoAnswer) as error:
                    if self._verdict(error) == LOOK_FIRST:
                        tries.may_have_been_carried_out()
                    if locked is not None and getattr(error, "code", "") in LOCKED_CODES:
                        locked()
                    if self._pause_after(error, backoff, deadline) == LOOK_FIRST:
                        found = look()
                        if found is not None:
                            return found


class Deadline:
    """Ends ``seconds`` after it was made; ``what`` completes the sentence 'was not reached within …'."""

    def __init__(
        self,
        seconds: float,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self.what = what
        self._clock = clock
        self._sleep = sleep
        self._end = clock() + seconds

    def left(self) -> float:
        """Seconds that are left, never negative."""
        return max(0.0, self._end - self._clock())

    def exceeded(self, reason: str) -> TimeLimit:
        """The error to raise when time is up; ``reason`` says what was seen last."""
        return TimeLimit(f"{self.what} was not reached within {self.seconds:g} s: {reason}")

    def sleep(self, seconds: float, reason: str) -> None:
        """Sleep, or raise TimeLimit when the limit would pass during the sleep."""
        if seconds > self.left():
            raise self.exceeded(reason)
        self._sleep(seconds)
