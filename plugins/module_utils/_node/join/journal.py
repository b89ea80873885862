# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the lines of a kubelet's log say about a join (pure)."""

from __future__ import annotations

import re

#: Lines after which the kubelet exits every time it is started.
_HOPELESS = re.compile(
    r"unknown (shorthand )?flag|failed to (load|parse|validate|decode)[^\n]*(config|flag)"
    r"|invalid (argument|configuration)"
    r"|unknown 'kubernetes.io' or 'k8s.io' labels|running with swap on is not supported"
    r"|configured to not run on a host using cgroup v1|cannot use webhook authentication",
    re.IGNORECASE,
)
_EXIT = re.compile(r"Main process exited, code=|Failed with result '")
_UNAUTHORIZED = re.compile(r"(certificate signing request|csr|bootstrap)[^\n]*Unauthorized", re.IGNORECASE)
_FORBIDDEN = re.compile(r'is forbidden: User "system:bootstrap:[^\n]*certificatesigningrequests')
_UNKNOWN_CA = re.compile(r"x509: certificate signed by unknown authority|x509: certificate is (valid for|not valid)")
_CLOCK = re.compile(r"x509: certificate has expired or is not yet valid")
_UNREACHABLE = re.compile(r"connection refused|no route to host|i/o timeout|network is unreachable|no such host")
#: Lines that say nothing and come many times a second while a node is not registered.
_NOISE = re.compile(r"mirror pod|[Nn]ode [^ ]* not found|Error getting node|nodes have not yet been read")

_LINES, _LONGEST = 12, 400


def exits(lines):
    """How many times the unit's main process ended."""
    return sum(1 for line in lines if "Main process exited, code=" in line)


def hopeless(lines):
    """The last line that shows that every start will end the same way; None when there is none."""
    found = [line for line in lines if _HOPELESS.search(line)]
    return found[-1] if found else None


def told(lines):
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


def tail(lines):
    """The last lines that say something, shortened, as one text."""
    kept = [line for line in lines if line.strip() and not _NOISE.search(line)]
    return "\n".join(line[:_LONGEST] for line in kept[-_LINES:])
