# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One JSON POST with the report of a run, signed with HMAC-SHA256 as webhooks of GitHub are.

An address may hold secrets in every part but its scheme and host, so nothing else of it is ever shown.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.kubenode.provision.plugins.module_utils._common import web

SIGNATURE = "X-Kubenode-Signature"
#: Bytes of a body; a longer report is sent without its details.
MOST = 256 * 1024
#: Failed machines whose names and reasons a shortened body has, and characters of a reason.
SHOWN, REASON = 100, 200
TRIES = 4
_PAUSE = 1.0
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])


class NotSent(Exception):
    """The receiver did not take the report; the text has no secret."""


class Target(NamedTuple):
    """Where the report goes. ``timeout``: seconds for all tries together."""

    url: str
    secret: str
    timeout: float

    @property
    def shown(self) -> str:
        """Scheme and host, for people; raises :class:`NotSent` for what is no address."""
        try:
            parts = web.split_url(self.url)
        except ValueError:
            parts = None
        strange = any(one.isspace() or not one.isprintable() for one in self.url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or strange:
            raise NotSent("it is no address that begins with https:// or http://")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def body(data: Mapping[str, Any]) -> bytes:
    """The report as JSON of at most :data:`MOST` bytes, with the key ``summary``.

    ``truncated`` says what was left out to that end: ``""``, ``"details"`` (transitions and output of the machines) or
    ``"machines"`` (all but the failed ones, of which there are :data:`SHOWN` at most).
    """
    for shape in _shapes(data):
        encoded = json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(encoded) <= MOST:
            return encoded
    raise AssertionError("the last shape is short")


def _shapes(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    machines = list(data.get("machines") or [])
    summary = {
        "machines": len(machines),
        "verified": sum(bool(one.get("verified")) for one in machines),
        "changed": sum(bool(one.get("changed")) for one in machines),
        "failed": sum(bool(one.get("failed")) for one in machines),
    }
    whole = {**data, "event": "provision_report", "summary": summary, "truncated": ""}
    yield whole
    details = ("transitions", "stderr_tail", "interleaved_tail")
    short = [{key: value for key, value in one.items() if key not in details} for one in machines]
    yield {**whole, "machines": short, "truncated": "details"}
    failed = [
        {"name": one.get("name"), "failed": True, "reason": str(one.get("reason") or "")[:REASON]}
        for one in machines
        if one.get("failed")
    ]
    kept = {key: data.get(key) for key in ("version", "started", "finished", "changed", "check", "interrupted", "cost")}
    rest = {"event": "provision_report", "summary": summary, "truncated": "machines"}
    yield {**{key: value for key, value in kept.items() if value is not None}, **rest, "machines": failed[:SHOWN]}


def sign(secret: str, data: bytes) -> str:
    """The value of the header :data:`SIGNATURE`."""
    return "sha256=" + hmac.new(secret.encode("utf-8"), data, hashlib.sha256).hexdigest()


def send(target: Target, data: bytes, sleep: Callable[[float], None] = time.sleep) -> int:
    """POST ``data``; the status of the answer. Raises :class:`NotSent`.

    A lost connection and an error of the server are tried again. Every try has the same ``X-Kubenode-Delivery``.
    """
    shown, until, pause = target.shown, time.monotonic() + target.timeout, _PAUSE
    bare, login = web.split_login(target.url)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": web.AGENT,
        "X-Kubenode-Event": "provision_report",
        "X-Kubenode-Delivery": str(uuid.uuid4()),
    }
    if target.secret:
        headers[SIGNATURE] = sign(target.secret, data)
    if login:
        headers["Authorization"] = login
    for left in reversed(range(TRIES)):
        request = urllib.request.Request(bare, data=data, headers=headers, method="POST")
        try:
            status = _within(until - time.monotonic(), request)
        except _Lost as error:
            reason = str(error)
        else:
            if 200 <= status < 300:
                return status
            reason = f"the answer is {status} {http.client.responses.get(status, '')}".rstrip()
            if 300 <= status < 400:
                raise NotSent(f"{shown}: {reason}; redirects are not followed, give the address that it leads to")
            if status not in _AGAIN:
                raise NotSent(f"{shown}: {reason}")
        if not left or until - time.monotonic() <= pause:
            raise NotSent(f"{shown}: {reason}")
        sleep(pause)
        pause *= 2
    raise AssertionError("the last try ends it")


class _Lost(Exception):
    """No answer came."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other."""

    def redirect_request(self, *_given: Any) -> None:
        return None


def _within(seconds: float, request: urllib.request.Request) -> int:
    """The status of the answer to one request. A thread, since names and slow answers know no time limit."""
    found: list[int | str] = []

    def ask() -> None:
        # Proxies are those of the environment, as for every download.
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=max(0.1, seconds)) as answer:
                found.append(answer.status)
        except urllib.error.HTTPError as error:
            found.append(error.code)
            error.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            found.append(_why(error))

    thread = threading.Thread(target=ask, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # Since Python 3.12 a process that ends after an interruption starts none.
        ask()
    else:
        thread.join(max(0.1, seconds))
    result = found[0] if found else "no answer in time"
    if isinstance(result, str):
        raise _Lost(result)
    return result


def _why(error: Exception) -> str:
    """An error without the address that it may hold."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    text = getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or ""
    return f"no answer ({type(cause).__name__}{f': {text}' if text else ''})"
