# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the lines of a kubelet's log say about a join (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..._common.text import json_object, json_value

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


def exits(lines: Sequence[str]) -> int:
    """How many times the unit's main process ended."""
    return sum(1 for line in lines if "Main process exited, code=" in line)


def hopeless(reason_: str) -> bool:
    """Whether every start will end for this reason."""
    return bool(_HOPELESS.search(reason_))


def reason(lines: Sequence[str]) -> str:
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
    return why if what == _LAST_WORDS[0] else "%s: %s" % (what, why)


def _unquoted(text: str) -> str:
    """A text in Go's quotes, behind the first one; what is left of it when the line was cut."""
    match = re.match(r'(?:[^"\\]|\\.)*', text)
    inner = match[0] if match else ""
    try:
        return str(json_value('"%s"' % inner))
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
