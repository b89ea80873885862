# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which labels and taints a kubelet may give its own node (pure)."""

from __future__ import annotations

import re

#: labels of the project's own domains that a node may set on itself
ALLOWED = frozenset(
    [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    ]
)
_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_DOMAINS = ("kubernetes.io", "k8s.io")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class LabelError(ValueError):
    """A label or taint is refused."""


def check_labels(labels: dict[str, str]) -> None:
    """Raise :class:`LabelError` as the real one does before it starts."""
    unknown = sorted(key for key in labels if _ours(key) and not _allowed(key))
    if unknown:
        raise LabelError(
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [%s]\n"
            "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (%s) "
            "or be in the specifically allowed set (%s)"
            % (" ".join(unknown), ", ".join(_PREFIXES), ", ".join(sorted(ALLOWED)))
        )
    for key, value in labels.items():
        prefix, _slash, name = key.rpartition("/")
        if not _NAME.match(name) or (prefix and not _PREFIX.match(prefix)):
            raise LabelError("invalid label key %r" % key)
        if not _VALUE.match(value):
            raise LabelError("invalid label value %r of %s" % (value, key))


def _ours(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(domain == own or domain.endswith("." + own) for own in _DOMAINS)


def _allowed(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return key in ALLOWED or any(domain == own or domain.endswith("." + own) for own in _PREFIXES)


def taints(text: str) -> list[dict[str, str]]:
    """``key=value:Effect,…`` of ``--register-with-taints``; raises :class:`LabelError`."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        head, colon, effect = part.rpartition(":")
        if not colon or effect not in EFFECTS:
            raise LabelError("invalid taint effect: %s, %s" % (effect, part))
        key, _equals, value = head.partition("=")
        found.append({"key": key, "value": value, "effect": effect})
    return found
