# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report callback exports at the end of a run: a file of metrics, and the report by one POST.

Nothing here fails a run: what does not work is a warning.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.template import Templar

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, web
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import metric_labels, moment

from . import report_files

#: Options of the callback that are variables of a playbook, too, since a job of AWX has no other place for them.
VARIABLES = {
    "notify_url": "kubenode_notify_url",
    "notify_secret": "kubenode_notify_secret",
    "notify_timeout": "kubenode_notify_timeout",
}
#: The longest time limit of a notification, in seconds.
_LONGEST = 600.0


class Exports:
    """``option`` reads an option of the callback; ``say`` and ``warn`` show a line."""

    def __init__(self, option: Callable[[str], Any], say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._option, self._say, self._warn = option, say, warn
        self._variables: dict[str, Any] = {}

    def play(self, play: Any) -> None:
        """Read our variables as the first host of a play has them; the first play that sets one counts."""
        for name, value in _variables_of(play, [one for one in VARIABLES.values() if one not in self._variables]):
            if isinstance(value, Exception):
                self._warn(f"{name} cannot be read ({type(value).__name__}), so it does nothing")
            else:
                self._variables[name] = value

    def send(self, data: Mapping[str, Any]) -> None:
        """Export the report; with ``data["check"]`` only say what would be."""
        self._write_metrics(data)
        self._notify(data)

    def _write_metrics(self, data: Mapping[str, Any]) -> None:
        path = self._option("metrics_file")
        if not path:
            return
        path = os.path.abspath(path)
        if not path.endswith(".prom"):
            self._warn(f"No metrics are written: node_exporter reads files that end in .prom, and {path} does not")
            return
        try:
            text = metrics_text(data, parse_labels(self._option("metrics_labels") or []))
            if data.get("check"):
                self._say(f"Metrics: nothing is written in check mode; a run writes {path}")
                return
            report_files.write(path, text)
        except (BadLabel, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._warn(f"The metrics could not be written to {path}: {reason}")
        else:
            self._say(f"Metrics: {path}")

    def _notify(self, data: Mapping[str, Any]) -> None:
        url = self._get("notify_url")
        if not url:
            return
        try:
            target = Target(str(url), str(self._get("notify_secret") or ""), self._seconds())
            shown, body = target.shown, notification(data)
            if data.get("check"):
                signed = "signed" if target.secret else "not signed"
                text = f"a run sends {len(body)} bytes ({signed}) to {shown}"
                self._say(f"Notification: nothing is sent in check mode; {text}")
                return
            status = post(target, body)
        except NotSent as error:
            self._warn(f"The report could not be sent to kubenode_notify_url: {error}")
        else:
            self._say(f"Notification: {shown} took {len(body)} bytes ({status})")

    def _seconds(self) -> float:
        given = self._get("notify_timeout")
        try:
            seconds = float(given)
        except (TypeError, ValueError):
            seconds = 0.0
        if not 0 < seconds <= _LONGEST:
            raise NotSent(f"kubenode_notify_timeout is no number of seconds up to {_LONGEST:.0f}")
        return seconds

    def _get(self, option: str) -> Any:
        value = self._variables.get(VARIABLES[option])
        return self._option(option) if value is None else value


def _variables_of(play: Any, names: list[str]) -> list[tuple[str, Any]]:
    """Those of ``names`` that the first host of a play has, with their values, or with the error of a template."""
    manager = play.get_variable_manager()
    if manager is None or not names:
        return []
    found = manager.get_vars(play=play)
    inventory = getattr(manager, "_inventory", None)
    hosts = found.get("ansible_play_hosts_all") or []
    host = inventory.get_host(hosts[0]) if inventory is not None and hosts else None
    if host is not None:
        found = manager.get_vars(play=play, host=host)
    templar = Templar(loader=play.get_loader(), variables=found)
    values: list[tuple[str, Any]] = []
    for name in names:
        if found.get(name) is None:
            continue
        try:
            values.append((name, templar.template(found[name])))
        except AnsibleError as error:
            values.append((name, error))
    return values


# --- the report of a run in the text format of Prometheus, for the textfile collector of node_exporter (pure).
#
# Every value is of the last run: a run replaces the file. No label holds the name of a machine.


PREFIX = "kubenode_provision_"
#: Upper bounds of the histograms, in seconds: from one request to the longest command.
BUCKETS = (1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 420, 600, 900, 1200, 1800, 3600)
OUTCOMES = ("verified", "unverified", "unchanged", "unfinished", "removed", "failed")
#: Labels of ours, which a user's label must not hide.
_OURS = ("api", "from_state", "le", "outcome", "phase", "to_state")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")

Labels = Mapping[str, str]


class BadLabel(ValueError):
    """A label of the user's that Prometheus, or we, cannot take."""


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """Labels from ``name=value``; raises :class:`BadLabel`."""
    labels = {}
    for text in given:
        name, equals, value = str(text).partition("=")
        if not equals or not _LABEL.match(name):
            raise BadLabel(f"{text!r} is no label; write it as name=value, the name of ASCII letters, digits and _")
        if name in _OURS:
            raise BadLabel(f"the label {name} has a meaning here already; choose another name")
        labels[name] = value
    return labels


def metrics_text(data: Mapping[str, Any], labels: Labels | None = None) -> str:
    """The text of the file. ``data``: the report (`Report.as_dict`, with ``started`` and ``finished``)."""
    page = _Page(labels or {})
    page.gauge("run_start_timestamp_seconds", "When the last run began.", [({}, moment(data.get("started")))])
    ended = moment(data.get("finished") or data.get("updated"))
    page.gauge("run_finish_timestamp_seconds", "When the last run ended.", [({}, ended)])
    interrupted = float(bool(data.get("interrupted")))
    page.gauge("run_interrupted", "Whether the last run was interrupted (1) or not (0).", [({}, interrupted)])
    machines = data.get("machines") or []
    found = [outcome(machine, bool(data.get("interrupted"))) for machine in machines]
    page.gauge(
        "machines", "Machines of the last run, each with one outcome.",
        [({"outcome": one}, float(found.count(one))) for one in OUTCOMES],
    )  # fmt: skip
    drifted = sum(bool(machine.get("drift")) for machine in machines)
    page.gauge("drifted_machines", "Machines that run something else than what is asked for.", [({}, float(drifted))])
    calls = (data.get("api_calls") or {}).get("total") or 0
    page.gauge("api_requests", "Requests to the APIs of the provider in the last run.", [({}, float(calls))])
    budgets = sorted((data.get("api_budget") or {}).items())
    for key, text in (("limit", "may be made in an hour"), ("remaining", "could still be made at the last answer")):
        page.gauge(
            f"api_requests_{key}", f"Requests that {text}, where the API tells it.",
            [({"api": api}, float(budget[key])) for api, budget in budgets],
        )  # fmt: skip
    page.histogram(
        "boot_state_duration_seconds", "Seconds that machines spent from one boot state to the next.", _pairs(machines)
    )
    page.histogram(
        "phase_duration_seconds", "Seconds that machines spent in a role of the node phase.", _phases(data)
    )  # fmt: skip
    return page.text()


def outcome(machine: Mapping[str, Any], interrupted: bool = False) -> str:
    """Which one of :data:`OUTCOMES` a machine of the report has; ``interrupted``: the run did not come to its end."""
    if machine.get("failed"):
        return "failed"
    if machine.get("removed"):
        return "removed"
    if interrupted and machine.get("boot_state") != boot_states.OPERATING_SYSTEM_RUNNING:
        return "unfinished"
    if not machine.get("changed"):
        return "unchanged"
    return "verified" if machine.get("verified") else "unverified"


def _pairs(machines: Sequence[Mapping[str, Any]]) -> list[tuple[Labels, list[float]]]:
    found: dict[tuple[str, str], list[float]] = {}
    for machine in machines:
        for step in machine.get("transitions") or []:
            found.setdefault((step["from"], step["to"]), []).append(float(step["seconds"]))
    # What is no boot state would be a label for each text that a result ever had.
    known = {one: place for place, one in enumerate(boot_states.ORDER)}
    pairs = sorted((pair for pair in found if set(pair) <= set(known)), key=lambda pair: [known[one] for one in pair])
    return [({"from_state": pair[0] or "none", "to_state": pair[1]}, found[pair]) for pair in pairs]


def _phases(data: Mapping[str, Any]) -> list[tuple[Labels, list[float]]]:
    found: dict[str, list[float]] = {}
    for phase in data.get("phases") or []:
        found.setdefault(phase["phase"], []).append(float(phase["seconds"]))
    return [({"phase": name}, values) for name, values in sorted(found.items())]


class _Page:
    """The lines of a file, family by family."""

    def __init__(self, labels: Labels) -> None:
        self._labels, self._lines = labels, list[str]()

    def gauge(self, name: str, text: str, samples: Sequence[tuple[Labels, float | None]]) -> None:
        """A family of values; without a known value it is left out."""
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            self._head(name, text, "gauge")
            self._lines += [self._sample(name, labels, value) for labels, value in known]

    def histogram(self, name: str, text: str, series: Sequence[tuple[Labels, list[float]]]) -> None:
        """A family of histograms; without a series it is left out."""
        if series:
            self._head(name, text, "histogram")
        for labels, values in series:
            for bound in (*BUCKETS, float("inf")):
                within = sum(value <= bound for value in values)
                self._lines.append(self._sample(f"{name}_bucket", {**labels, "le": _number(bound)}, within))
            self._lines.append(self._sample(f"{name}_sum", labels, round(sum(values), 3)))
            self._lines.append(self._sample(f"{name}_count", labels, len(values)))

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _head(self, name: str, text: str, kind: str) -> None:
        self._lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]

    def _sample(self, name: str, labels: Labels, value: float) -> str:
        return f"{PREFIX}{name}{metric_labels({**self._labels, **labels})} {_number(value)}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# --- one JSON POST with the report of a run, signed with HMAC-SHA256 as webhooks of GitHub are.
#
# An address may hold secrets in every part but its scheme and host, so nothing else of it is ever shown.


SIGNATURE = "X-Kubenode-Signature"
#: Bytes of a body; a longer report is sent without its details.
MOST = 256 * 1024
#: Failed machines whose names and reasons a shortened body has, and characters of a reason.
SHOWN, REASON = 100, 200
TRIES = 4
_PAUSE = 1.0
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}\Z")
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])


class NotSent(Exception):
    """The receiver did not take the report; the text has no secret."""


def wrong_address(url: str) -> str:
    """Why no report can be sent there, with nothing of it but the scheme; empty when one can."""
    scheme, mark, _rest = url.partition("://")
    if any(one.isspace() or not one.isprintable() for one in url):
        return "it holds a space or a character that cannot be printed"
    if not mark or not _SCHEME.match(scheme):
        return "it does not begin with https:// or http://"
    if scheme.lower() not in ("http", "https"):
        return f"it begins with {scheme}://; use https:// or http://"
    try:
        host = web.split_url(url).hostname
    except ValueError:
        return f"what follows {scheme}:// is no host, or has a port that is none"
    return "" if host else f"no host follows {scheme}://"


class Target(NamedTuple):
    """Where the report goes. ``timeout``: seconds for all tries together."""

    url: str
    secret: str
    timeout: float

    @property
    def shown(self) -> str:
        """Scheme and host, for people; raises :class:`NotSent` for what is no address."""
        wrong = wrong_address(self.url)
        if wrong:
            raise NotSent(wrong)
        parts = web.split_url(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def notification(data: Mapping[str, Any]) -> bytes:
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
        "verified": sum(outcome(one) not in ("failed", "removed") and bool(one.get("verified")) for one in machines),
        "changed": sum(bool(one.get("changed")) for one in machines),
        "failed": sum(bool(one.get("failed")) for one in machines),
        "removed": sum(bool(one.get("removed")) for one in machines),
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


def signature_of(secret: str, data: bytes) -> str:
    """The value of the header :data:`SIGNATURE`."""
    return "sha256=" + hmac.new(secret.encode("utf-8"), data, hashlib.sha256).hexdigest()


def post(target: Target, data: bytes, sleep: Callable[[float], None] = time.sleep) -> int:
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
        headers[SIGNATURE] = signature_of(target.secret, data)
    if login:
        headers["Authorization"] = login
    for left in reversed(range(TRIES)):
        request = urllib.request.Request(bare, data=data, headers=headers, method="POST")
        answer = _within(until - time.monotonic(), request)
        if isinstance(answer, str):
            reason = answer
        else:
            if 200 <= answer < 300:
                return answer
            reason = f"the answer is {answer} {http.client.responses.get(answer, '')}".rstrip()
            if 300 <= answer < 400:
                raise NotSent(f"{shown}: {reason}; redirects are not followed, give the address that it leads to")
            if answer not in _AGAIN:
                raise NotSent(f"{shown}: {reason}")
        if not left or until - time.monotonic() <= pause:
            raise NotSent(f"{shown}: {reason}")
        sleep(pause)
        pause *= 2
    raise AssertionError("the last try ends it")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other."""

    def redirect_request(self, *_given: Any) -> None:
        return None


def _within(seconds: float, request: urllib.request.Request) -> int | str:
    """The status of the answer to one request, or why there is none.

    A thread, since names and slow answers know no time limit.
    """
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
    return found[0] if found else "no answer in time"


def _why(error: Exception) -> str:
    """An error without the address that it may hold."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    text = getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or ""
    return f"no answer ({type(cause).__name__}{f': {text}' if text else ''})"
