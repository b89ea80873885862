# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Waits until a machine is a node of its cluster, and finds in the journal of the kubelet why it is not."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._common.text import json_object, json_value, moment, whole_number
from .. import api_server
from ..api_server import Answer, Api, ApiError
from ..host import Host
from . import join_files
from .codes import JoinFailure

#: Reasons of an exit after which the kubelet exits every time it is started.
_HOPELESS = re.compile(
    r"unknown (shorthand )?flag|failed to (load|parse|validate|decode)[^\n]*(config|flag)"
    r"|invalid (argument|configuration)"
    r"|unknown 'kubernetes.io' or 'k8s.io' labels|running with swap on is not supported"
    r"|configured to not run on a host using cgroup v1|cannot use webhook authentication",
    re.IGNORECASE,
)
#: What the kubelet says right before it exits, in klog's text; the value may be quoted, or fill the lines that follow.
_LAST_WORD = re.compile(
    r'"(command failed|Failed to start ContainerManager|Kubelet failed to get node info)" err=(?:"(.*)|(<)\Z)'
)
_LAST_WORDS = ("command failed", "Failed to start ContainerManager", "Kubelet failed to get node info")
#: The same where it has not come as far as that.
_DIED = re.compile(r"(?:Error: |(?=panic: |fatal error: |F[0-9]{4} ))(.+)")
#: The lines of klog's value of several lines, and its end.
_WITHIN, _CLOSES = "\t", " >"
_UNAUTHORIZED = re.compile(r"(certificate signing request|csr|bootstrap)[^\n]*Unauthorized", re.IGNORECASE)
_FORBIDDEN = re.compile(r'is forbidden: User "system:bootstrap:[^\n]*certificatesigningrequests')
_UNKNOWN_CA = re.compile(r"x509: certificate signed by unknown authority|x509: certificate is (valid for|not valid)")
_CLOCK = re.compile(r"x509: certificate has expired or is not yet valid")
_UNREACHABLE = re.compile(r"connection refused|no route to host|i/o timeout|network is unreachable|no such host")
#: Lines that say nothing and come many times a second while a node is not registered.
_NOISE = re.compile(
    r"mirror pod|[Nn]ode [^ ]* not found|Error getting node|nodes have not yet been read"
    r"|unable to read existing bootstrap client config| FLAG: --"
)
#: What it says at every start since 1.37, in many lines.
_EFFECTIVE = '"Effective KubeletConfiguration"'

_LINES, _LONGEST = 12, 400
#: Characters of a line in which a reason is looked for: some patterns take the square of that many steps.
_LOOKED_AT = 4096


def exits(lines: Sequence[str]) -> int:
    """How many times the unit's main process ended."""
    return sum(1 for line in lines if "Main process exited, code=" in line)


def hopeless(reason_: str) -> bool:
    """Whether every start will end for this reason."""
    return bool(_HOPELESS.search(reason_))


def exit_reason(lines: Sequence[str]) -> str:
    """Why the main process ended last, on one line; empty when no line says so."""
    found = ""
    for number, line in enumerate(lines):
        # a line of a value of several lines is no line of the log
        if not line.startswith(_WITHIN):
            found = _last_word(line, lines[number + 1 :]) or found
    return " ".join(found.split())


def _last_word(line: str, after: Sequence[str]) -> str:
    if line.startswith("{"):
        said = json_object(line) or {}
        return _with_what(said["msg"], str(said.get("err") or "")) if said.get("msg") in _LAST_WORDS else ""
    match = _LAST_WORD.search(line)
    if match:
        return _with_what(match[1], _block(after) if match[3] else _unquoted(match[2]))
    match = _DIED.match(line)
    return match[1] if match else ""


def _with_what(what: str, why: str) -> str:
    return why if what == _LAST_WORDS[0] else f"{what}: {why}"


def _unquoted(text: str) -> str:
    """A text in Go's quotes, behind the first one; what is left of it when the line was cut."""
    match = re.match(r'(?:[^"\\]|\\.)*', text)
    inner = match[0] if match else ""
    try:
        return str(json_value(f'"{inner}"'))
    except ValueError:
        return inner.replace('\\"', '"')


def _block(lines: Sequence[str]) -> str:
    kept = []
    for line in lines:
        if not line.startswith(_WITHIN):
            break
        kept.append(line)
    return "\n".join(kept)


def cause(lines: Sequence[str]) -> tuple[str, str] | tuple[None, None]:
    """(code, line) by the last line that names a reason; (None, None) when no line does."""
    for line in reversed(lines):
        line = line[:_LOOKED_AT]
        for code, pattern in (
            ("token_refused", _UNAUTHORIZED),
            ("csr_forbidden", _FORBIDDEN),
            ("clock_skew", _CLOCK),
            ("ca_mismatch", _UNKNOWN_CA),
            ("api_unreachable", _UNREACHABLE),
        ):
            if pattern.search(line):
                return code, line
    return None, None


def tail(lines: Sequence[str]) -> str:
    """The last lines that say something, shortened, as one text."""
    kept, skips = [], False
    for line in lines:
        skips = _EFFECTIVE in line or (skips and (line.startswith(_WITHIN) or line == _CLOSES))
        if line.strip() and not skips and not _NOISE.search(line):
            kept.append(line)
    return "\n".join(line[:_LONGEST] for line in kept[-_LINES:])


_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
_UNIT = "kubelet.service"
#: Seconds between two looks; the first ones are quicker.
_POLL, _FIRST_POLL = 1.0, 0.25
#: A fresh token is not known to every API server at once: so long, in seconds, a refusal may be passing.
_PATIENCE = 10
#: A kubelet that ended so often will not come up.
_EXITS = 3
_PROPERTIES = "ActiveState,SubState,LoadState,NRestarts"
#: How far back the reason of an exit is looked for, in lines, and how much of it is said, in characters.
_MANY_LINES, _LONGEST_REASON = 10000, 1000


class Wait:
    """One wait. ``options`` are those of the module node_join_wait; ``host`` is the machine."""

    def __init__(self, options: Mapping[str, Any], host: Host | None = None) -> None:
        self._options, self._host = options, host or Host()
        self._began, self._since = time.monotonic(), options["since"] or time.time()
        self._seen: dict[str, Any] = {}
        self._ca = self._host.text(join_files.CA) or ""
        self.seconds: dict[str, float] = {}
        self.node: dict[str, Any] | None = None
        self.request: dict[str, Any] | None = None

    def run(self) -> dict[str, Any]:
        """Wait for each step and return the Node; raise :class:`JoinFailure` as soon as it is certain, or too late."""
        self._until("certificate", self._has_certificate, self._why_no_certificate)
        self._until("node", self._has_node, self._why_no_node)
        if self._options["ready"]:
            self._until("ready", self._is_ready, self._why_not_ready)
        if self.node is None:
            raise AssertionError("a wait that is over has its Node")
        return self.node

    def no_certificate(self) -> JoinFailure:
        """The :class:`JoinFailure` of a kubelet that kubeadm waited for in vain."""
        failure = self._why_no_certificate(over=True)
        if failure is None:
            raise AssertionError("a wait that is over has a reason")
        return failure

    def _until(self, step: str, done: Callable[[], bool], why: Callable[[bool], JoinFailure | None]) -> None:
        pause = _FIRST_POLL
        while not done():
            over = time.monotonic() - self._began >= self._options["timeout"]
            failure = why(over)
            if failure:
                raise failure
            time.sleep(min(pause, max(0.05, self._began + self._options["timeout"] - time.monotonic())))
            pause = min(_POLL, pause * 1.5)
        self.seconds[step] = round(time.monotonic() - self._began, 3)

    def _has_certificate(self) -> bool:
        text = self._host.text(join_files.CLIENT_PEM)
        if text is None or not self._host.exists(join_files.KUBECONFIG):
            return False
        try:
            certificate = api_server.certificates(text)[0]
            name, end = api_server.subject(certificate)["CN"], api_server.validity(certificate)[1]
        except api_server.BadCertificate:
            return False
        return name == "system:node:" + self._options["node_name"] and end > time.time()

    def _why_no_certificate(self, over: bool) -> JoinFailure | None:
        lines = self._journal()
        failure = self._exited(lines) or self._refused()
        if failure or not over:
            return failure
        if self.request and self.request["approved"]:
            detail = f"the request {self.request['name']} is approved, but not signed; "
            detail += f"does kube-controller-manager sign for {_SIGNER}?"
            return JoinFailure("csr_pending", detail)
        if self.request:
            detail = f"the request {self.request['name']} waits since {self.request['created']}"
            return JoinFailure("csr_pending", detail)
        return self._by_journal(lines, f"the kubelet got no certificate within {self._options['timeout']} s")

    def _has_node(self) -> bool:
        answer = self._ask_as_node()
        self.node = answer.body if answer and answer.status == 200 else None
        return self.node is not None

    def _why_no_node(self, over: bool) -> JoinFailure | None:
        lines = self._journal()
        failure = self._exited(lines)
        if failure or not over:
            return failure
        seen = self._seen.get("node")
        name, timeout = self._options["node_name"], self._options["timeout"]
        detail = f"the kubelet has its certificate, but there is no Node {name} after {timeout} s"
        if isinstance(seen, ApiError):
            return JoinFailure(seen.code, f"{detail}: {seen}")
        return self._by_journal(lines, detail)

    def _is_ready(self) -> bool:
        answer = self._ask_as_node()
        if answer and answer.status == 200:
            self.node = answer.body
        return self._ready()[0]

    def _why_not_ready(self, over: bool) -> JoinFailure | None:
        failure = self._exited(self._journal())
        if failure or not over:
            return failure
        return JoinFailure("not_ready", self._ready()[1])

    def _ready(self) -> tuple[bool, str]:
        old = api_server.old_kubelet(self.node or {}, self._options.get("kubelet_version") or "")
        return (False, old) if old else node_ready(self.node)

    def _ask_as_node(self) -> Answer | None:
        try:
            api = Api(
                self._options["api_server"], self._ca, client_pem=self._host.path(join_files.CLIENT_PEM), timeout=5
            )
            answer = api.get(api_server.node_path(self._options["node_name"]))
        except ApiError as error:
            self._seen["node"] = error
            return None
        self._seen["node"] = answer
        return answer

    def _exited(self, lines: list[str]) -> JoinFailure | None:
        """A failure when the kubelet cannot come up."""
        state = self._unit()
        if state.get("LoadState") == "not-found":
            return JoinFailure("kubelet_exited", f"there is no unit {_UNIT}; run the role base first")
        count = max(exits(lines), self._restarts(state))
        failed = state.get("ActiveState") == "failed"
        if not count and not failed:
            return None
        # one that says much has pushed its last words out of these lines
        reason = exit_reason(lines) or exit_reason(self._journal(_MANY_LINES))
        if not failed and not hopeless(reason) and count < _EXITS:
            return None
        ended = "the unit has failed" if failed else "it ended once" if count == 1 else f"it ended {count} times"
        ended += ": " + reason[:_LONGEST_REASON] if reason else ""
        return JoinFailure("kubelet_exited", f"{ended}; its last lines:\n{tail(lines)}")

    def _restarts(self, state: Mapping[str, str]) -> int:
        """How often systemd has started the kubelet again since this wait began."""
        count = whole_number(state.get("NRestarts")) or 0
        # a start by hand makes it 0
        before: int = min(count, self._seen.get("restarts", count))
        self._seen["restarts"] = before
        return count - before

    def _refused(self) -> JoinFailure | None:
        """A failure when the API server says that the token or the request will not do."""
        text = self._host.text(join_files.BOOTSTRAP_KUBECONFIG)
        try:
            server, token = join_files.token_of(text or "")
        except ValueError:
            return None
        try:
            answer = Api(server, self._ca, token=token, timeout=5).get(_REQUESTS)
        except ApiError as error:
            # the clocks and the CA were right a moment ago; a server that is away may come back
            return JoinFailure(error.code, str(error)) if error.code in ("ca_mismatch", "clock_skew") else None
        if answer.status == 401:
            first = self._seen.setdefault("refused", time.monotonic())
            if time.monotonic() - first >= min(_PATIENCE, self._options["timeout"] / 2):
                return JoinFailure("token_refused", f"the API server no longer accepts the token {token.split('.')[0]}")
            return None
        self._seen.pop("refused", None)
        if answer.status == 200:
            # the API server's clock wrote the times; a request of an earlier try is not ours
            since = self._since + (answer.skew or 0) - 2
            self.request = newest_request(answer.body, self._options["node_name"], since)
        if self.request and self.request["denied"] is not None:
            return JoinFailure("csr_denied", f"the request {self.request['name']} was denied: {self.request['denied']}")
        return None

    def _by_journal(self, lines: list[str], detail: str) -> JoinFailure:
        code, line = cause(lines)
        if code and line:
            return JoinFailure(code, f"{detail}; the kubelet says: {line[:400]}")
        state = self._unit()
        if state.get("ActiveState") == "active":
            # a request that waits leaves no line at all, and not every token may list requests
            return JoinFailure("csr_pending", f"{detail}, and says no reason; its last lines:\n{tail(lines)}")
        detail += f"; the unit is {state.get('ActiveState')} ({state.get('SubState')})"
        return JoinFailure("kubelet_exited", f"{detail}; its last lines:\n{tail(lines) or '(none)'}")

    def _journal(self, most: int = 500) -> list[str]:
        argv = [
            "journalctl",
            "--unit",
            _UNIT,
            "--since",
            f"@{int(self._since)}",
            "--output",
            "cat",
            "--lines",
            str(most),
        ]
        # the newest first, since only the begin of a very long output is kept
        done = self._host.run(argv + ["--reverse", "--no-pager", "--quiet"], 10)
        return done.out.splitlines()[::-1] if done.code == 0 else []

    def _unit(self) -> dict[str, str]:
        done = self._host.run(["systemctl", "show", _UNIT, "--property", _PROPERTIES], 10)
        return dict(line.split("=", 1) for line in done.out.splitlines() if "=" in line)


def newest_request(listed: Mapping[str, Any] | None, node_name: str, since: float) -> dict[str, Any] | None:
    """{name, created, approved, denied} of this node's last request since then; None when there is none.

    ``denied`` is the reason, None when it was not denied.
    """
    found = []
    for item in (listed or {}).get("items") or []:
        spec, metadata = item.get("spec") or {}, item.get("metadata") or {}
        created = metadata.get("creationTimestamp") or ""
        if spec.get("signerName") != _SIGNER or (moment(created) or 0) < since:
            continue
        if _common_name(spec.get("request")) == "system:node:" + node_name:
            found.append((created, metadata.get("name"), item.get("status") or {}))
    if not found:
        return None
    created, name, status = max(found, key=lambda one: one[0])
    said = {one.get("type"): one for one in status.get("conditions") or []}
    denied = said.get("Denied") or said.get("Failed")
    reason = None
    if denied is not None:
        reason = " ".join(part for part in (denied.get("reason"), denied.get("message")) if part) or "without a reason"
    return {"name": name, "created": created, "approved": "Approved" in said, "denied": reason}


def node_ready(node: Mapping[str, Any] | None) -> tuple[bool, str]:
    """(whether the Node is Ready, why not)."""
    ready = api_server.ready_condition(node)
    why = f"{ready.get('reason')}: {ready.get('message')}" if ready else "the Node has no condition Ready yet"
    return ready.get("status") == "True", why


def _common_name(request: str | None) -> str | None:
    try:
        text = base64.b64decode(request or "").decode("ascii", "replace")
        blocks = api_server.pem_blocks(text, "CERTIFICATE REQUEST")
        return api_server.request_subject(blocks[0])["CN"] if blocks else None
    except ValueError:
        return None
