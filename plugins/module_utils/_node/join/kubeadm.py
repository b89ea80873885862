# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Why kubeadm failed, by what it said (pure)."""

from __future__ import annotations

import re
from typing import NamedTuple

_PHASE = re.compile(r"error execution phase ([^\s:]+): (.*)", re.DOTALL)
#: One check of its preflight; what it says may go on in the next lines.
_CHECK = re.compile(r"^\s*\[ERROR ([^\]\s]+)\]: (.*(?:\n(?!\s*\[|error).*)*)", re.MULTILINE)
_NO_NEWS = re.compile(r"^To see the stack trace of .*$", re.MULTILINE)
_LONGEST = 1500


class Failure(NamedTuple):
    """``code`` of codes.CODES; ``of_kubelet``: kubeadm waited in vain for the kubelet, which may know why."""

    phase: str
    code: str
    detail: str
    of_kubelet: bool


def failure(code: int, errors: str) -> Failure:
    """A :class:`Failure` from its exit code and what it said on its standard error."""
    text = _NO_NEWS.sub("", errors).strip()
    match = _PHASE.search(text)
    phase, why = match.groups() if match else ("", text.rpartition("\n")[2].strip())
    if why.startswith("error: "):
        why = why[len("error: ") :]
    refused = ["%s: %s" % one for one in _CHECK.findall(text)]
    if refused:
        why = "its checks: " + "; ".join(refused)
    elif phase:
        why = "%s: %s" % (phase, why)
    detail = " ".join(why.split())[:_LONGEST] or "it ended with the exit code %d and said nothing" % code
    waited = phase.startswith("kubelet") and bool(re.search(r"waiting|healthz|deadline exceeded|timed out", why))
    return Failure(phase, "discovery_signature" if "JWS signature" in why else "kubeadm_failed", detail, waited)
