# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of faults of the API: what strikes, and what is expected of the fleet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.faults.fleet import Fleet

Fault = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One fault. The first run meets it; later ones only where it is still in the script."""

    name: str
    script: Callable[[Fleet], list[Fault]]
    #: How many machines may fail in the first run, and what their reason says; none by default.
    failing: int = 0
    says: str = ""
    #: Whether a module fails as a whole: the fault concerns all machines.
    whole: bool = False
    #: Whether machines show in their history that something had gone wrong.
    marks: bool = False
    #: The fault ends after the first run, as if it were repaired.
    mended: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The way out is to delete what is left of a server, and the second run says so.
    deleted: bool = False
    #: Requests that the fault may cost besides: looks at an action for as long as the time limit allows.
    extra: int = 0
    #: Whether `make test` has it.
    default: bool = False


def request(method: str = "", path: str = ".*", **more: Any) -> Fault:
    """A fault of the requests with this path."""
    return {"point": "request", "path": path, **({"method": method} if method else {}), **more}


def action(fleet: Fleet, command: str, **more: Any) -> Fault:
    """A fault of an action of the victim."""
    return {"point": "action", "machine": fleet.victim, "command": command, **more}


def any_of(fleet: Fleet, **fault: Any) -> list[Fault]:
    """One that strikes a request in the middle, chosen by the seed."""
    return [request(**fault, skip=fleet.chance.randrange(fleet.size))]


ROUTES = ("/servers", ".*/actions/enable_rescue", ".*/actions/poweron")
BUSY = {"status": 429, "code": "rate_limit_exceeded"}
REVOKED = {"status": 401, "code": "unauthorized"}
HALF = {"garble": "half"}
GARBAGE = {"garble": "garbage"}
SHORT = {"timeout": 30}

ROWS = (
    Row("429 in bursts", lambda fleet: [request(**BUSY, times=8, skip=3), request(**BUSY, times=8, skip=25)]),
    Row(
        "5xx, and it happened",
        lambda fleet: [request("POST", path, status=502, after_effect=True, times=fleet.size) for path in ROUTES],
        default=True,
    ),
    Row(
        "5xx, and nothing happened",
        lambda fleet: [request("POST", path, status=503, code="unavailable", times=fleet.size) for path in ROUTES],
    ),
    Row("5xx of a proxy to reads", lambda fleet: [request("GET", status=504, times=12)]),
    Row(
        "connections that are cut",
        lambda fleet: [request("POST", path, drop=True, after_effect=True, times=fleet.size // 2) for path in ROUTES],
    ),
    Row(
        "answers that never come",
        lambda fleet: [request("POST", path, delay=70, status=504, after_effect=True) for path in ROUTES],
    ),
    Row(
        "garbage",
        lambda fleet: [
            *(request("POST", path, **GARBAGE, times=fleet.size // 2) for path in ROUTES),
            request("GET", **GARBAGE, times=3),
        ],
        default=True,
    ),
    Row(
        "half answers",
        lambda fleet: [
            *(request("POST", path, **HALF, times=fleet.size // 2) for path in ROUTES),
            request("GET", **HALF, times=3),
        ],
    ),
    *(
        Row(
            f"the clock is {'fast' if ahead > 0 else 'slow'} by two hours, and answers are lost",
            lambda fleet, ahead=ahead: [
                {"point": "clock", "ahead": ahead},
                *(request("POST", path, drop=True, after_effect=True, times=3) for path in ROUTES),
            ],
        )
        for ahead in (7200, -7200)
    ),
    *(
        Row(
            f"token revoked {where}",
            lambda fleet, skip=skip: [request(**REVOKED, skip=skip * fleet.size // 4, times=10**6)],
            whole=True,
            says="the API refused the token .*was not revoked",
            mended=True,
            marks=True,
            default=skip == 9,
        )
        for skip, where in ((4, "while servers are made"), (9, "while rescues are armed"), (11, "while servers start"))
    ),
    Row(
        "resource_unavailable",
        lambda fleet: any_of(fleet, method="POST", path="/servers", status=412, code="resource_unavailable"),
        failing=1,
        says="choose another location or server_type",
        default=True,
    ),
    *(
        Row(
            f"locked: {path.rpartition('/')[2]}",
            lambda fleet, path=path: [request("POST", path, status=423, code="locked", times=fleet.size // 2)],
        )
        for path in ROUTES[1:]
    ),
    Row("arming fails once", lambda fleet: [action(fleet, "enable_rescue", code="unknown_error")], marks=True),
    Row(
        "arming fails for good",
        lambda fleet: [action(fleet, "enable_rescue", code="unknown_error", times=3)],
        failing=1,
        says="enable_rescue .*failed.*The rescue is disarmed",
        marks=True,
    ),
    Row(
        "making a server fails",
        lambda fleet: [action(fleet, "create_server", code="placement_error", message="no room", delay=8)],
        failing=1,
        says="create_server .*failed: no room",
        marks=True,
        deleted=True,
    ),
    *(
        Row(
            f"stuck: {command}",
            lambda fleet, command=command: [action(fleet, command, effect="stuck")],
            failing=1,
            says="is still running|locked",
            mended=True,
            marks=True,
            options=SHORT,
            extra=40,
        )
        for command in ("create_server", "enable_rescue")
    ),
    Row("starting is slow", lambda fleet: [action(fleet, "start_server", effect="slow", delay=5)]),
)
