# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Why a join failed: the codes that results carry, what to do about each, and which one kubeadm means (pure)."""

from __future__ import annotations

import re
from typing import NamedTuple

#: code → (what is wrong, what to do)
CODES = {
    "api_unreachable": (
        "API server unreachable",
        "check join_api_server, the network and the firewall between this machine and the API server",
    ),
    "ca_mismatch": (
        "CA mismatch",
        "give the CA (join_ca_cert or join_ca_file) and the address (join_api_server) of one cluster",
    ),
    "pin_mismatch": (
        "CA pin mismatch",
        "compare join_discovery.ca_hashes with the cluster's CA; it may also be another cluster that answers",
    ),
    "discovery_signature": (
        "cluster-info not proven",
        "use a token of this cluster with the usage 'signing', or give join_ca_cert or join_discovery.ca_hashes",
    ),
    "token_refused": ("token refused or expired", "make a new bootstrap token, or set join_token_create"),
    "csr_forbidden": (
        "token may not ask for a certificate",
        "bind the token's group to the ClusterRole system:node-bootstrapper",
    ),
    "csr_pending": (
        "certificate request pending: nothing approves it",
        "bind the token's group to the ClusterRole system:certificates.k8s.io:certificatesigningrequests:nodeclient, "
        "or approve it: kubectl certificate approve NAME",
    ),
    "csr_denied": ("certificate request denied", "ask who denied it; then delete the request and join again"),
    "name_taken": (
        "node name taken",
        "give another join_node_name, delete the Node, or set join_check_name to false to take it over",
    ),
    "clock_skew": ("clocks differ", "set the clock of the machine (time synchronisation), then join again"),
    "version_skew": (
        "kubelet and API server do not fit",
        "install a kubelet that is not newer than the API server, and at most three minor versions older",
    ),
    "kubelet_exited": ("the kubelet exits", "mend what its last lines say"),
    "kubeadm_failed": ("kubeadm cannot join", "mend what it says; its checks are those of kubeadm join"),
    "not_ready": ("the Node is not Ready", "mend what its condition says; a cluster without a CNI has no Ready nodes"),
    "joined_elsewhere": (
        "already a node of another cluster or under another name",
        "correct join_node_name (kubenode_node_name), join_api_server or the CA; where the machine is really to leave "
        "that one, join_state: absent",
    ),
}


class JoinFailure(Exception):
    """A join that cannot be: ``code`` is one of :data:`CODES`, ``detail`` what was seen."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(message(code, detail))
        self.code = code
        self.detail = detail

    @property
    def result(self) -> dict[str, str]:
        """What a module returns of it."""
        return {"code": self.code, "detail": self.detail}


def message(code: str, detail: str) -> str:
    """The one line a user reads: what is wrong, what was seen, what to do."""
    what, fix = CODES[code]
    return f"{what}: {detail.rstrip('.')}. To mend it: {fix}"


_PHASE = re.compile(r"error execution phase ([^\s:]+): (.*)", re.DOTALL)
#: One check of its preflight; what it says may go on in the next lines.
_CHECK = re.compile(r"^[ \t]*\[ERROR ([^\]\s]+)\]: (.*(?:\n(?![ \t]*\[|error).*)*)", re.MULTILINE)
#: Its checks that ask the runtime, and what they say of one that took longer than kubeadm's two seconds.
_OF_RUNTIME = ("CRI", "ContainerRuntimeVersion")
_LATE = re.compile(r"DeadlineExceeded|context deadline exceeded")
_NO_NEWS = re.compile(r"^To see the stack trace of .*$", re.MULTILINE)
_LONGEST = 1500


class Failure(NamedTuple):
    """``code`` of codes.CODES; ``of_kubelet``: kubeadm waited in vain for the kubelet, which may know why.

    ``runtime_late``: the runtime answered too late, and nothing else speaks against the machine, nor was it changed.
    """

    phase: str
    code: str
    detail: str
    of_kubelet: bool
    runtime_late: bool


def failure(code: int, errors: str) -> Failure:
    """A :class:`Failure` from its exit code and what it said on its standard error."""
    text = _NO_NEWS.sub("", errors).strip()
    match = _PHASE.search(text)
    phase, why = match.groups() if match else ("", text.rpartition("\n")[2].strip())
    if why.startswith("error: "):
        why = why[len("error: ") :]
    refused = _CHECK.findall(text)
    if refused:
        why = "its checks: " + "; ".join(f"{name}: {words}" for name, words in refused)
    elif phase:
        why = f"{phase}: {why}"
    detail = " ".join(why.split())[:_LONGEST] or f"it ended with the exit code {code} and said nothing"
    waited = phase.startswith("kubelet") and bool(re.search(r"waiting|healthz|deadline exceeded|timed out", why))
    late = bool(refused) and all(name in _OF_RUNTIME and _LATE.search(words) for name, words in refused)
    return Failure(phase, "discovery_signature" if "JWS signature" in why else "kubeadm_failed", detail, waited, late)
