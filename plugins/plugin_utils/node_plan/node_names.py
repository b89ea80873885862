# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, labels and taints a kubelet may give its own Node (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import (
    HOST_NAME,
    LABEL_WORD,
    InvalidName,
)

from .plan_types import Taint

_PROVIDER_ID = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~/:@+-]+\Z")
#: Providers of which the form of the identifier is known.
_NUMBERED = ("hcloud", "hrobot")

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
_OWN_KEYS = frozenset(
    (
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    )
)
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLUSTER_DOMAINS = ("kubernetes.io", "k8s.io")


def check_node_name(name: Any) -> str:
    """Return ``name`` when a Node can have it (RFC 1123, lower case), else raise :class:`InvalidName`."""
    # the name is also the value of the label kubernetes.io/hostname, which is shorter than a host name may be
    if not isinstance(name, str) or len(name) > 63 or not HOST_NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} is no name for a node; use up to 63 lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit"
        )
    return name


def node_name(wanted: str, hostname: str) -> str:
    """The name of the Node: ``wanted``, else the host name as the kubelet reads it."""
    return check_node_name(wanted or hostname.strip().lower())


def check_label_key(key: object) -> str:
    """Return ``key`` when Kubernetes takes it as a key of a label or taint, else raise :class:`InvalidName`."""
    prefix, slash, name = key.rpartition("/") if isinstance(key, str) else ("", "", "")
    if slash and (len(prefix) > 253 or not HOST_NAME.fullmatch(prefix)):
        raise InvalidName(f"{key!r}: what is before '/' must be a DNS name in lower case")
    if not isinstance(key, str) or not LABEL_WORD.fullmatch(name):
        raise InvalidName(
            f"{key!r}: the key must be 1 to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    return key


def check_label_value(key: object, value: object) -> str:
    """Return ``value`` when Kubernetes takes it, else raise :class:`InvalidName`; ``key`` is named in the error."""
    if not isinstance(value, str):
        raise InvalidName(f"{key}: the value {value!r} is not a text; quote it")
    if value and not LABEL_WORD.fullmatch(value):
        raise InvalidName(
            f"{key}: the value {value!r} must be up to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    return value


def check_own_label(given: object) -> str:
    """Return the key when a kubelet may set this label on its own Node, else raise :class:`InvalidName`."""
    key = check_label_key(given)
    prefix = key.rpartition("/")[0]
    if key in _OWN_KEYS or _below(prefix, _OWN_DOMAINS) or not _below(prefix, _CLUSTER_DOMAINS):
        return key
    if _below(prefix, ("node-role.kubernetes.io",)) or prefix == "node-role.kubernetes.io":
        hint = f"a role is given with administrator's rights, after the join: kubectl label node NAME {key}="
    else:
        hint = (
            "within kubernetes.io and k8s.io a kubelet may set only {} and names below {}; "
            "use a prefix of your own, or set it with administrator's rights".format(
                ", ".join(sorted(_OWN_KEYS)), " and ".join(_OWN_DOMAINS)
            )
        )
    raise InvalidName(f"a kubelet may not set the label {key!r} on its own Node: {hint}")


def check_labels(labels: dict[Any, Any]) -> dict[str, str]:
    """Return ``labels`` ({key: value}) when a kubelet may set all of them, else raise :class:`InvalidName`."""
    for key, value in sorted(labels.items(), key=lambda item: str(item[0])):
        check_own_label(key)
        check_label_value(key, value)
    return labels


def parse_taint(text: Any) -> Taint:
    """``key=value:Effect`` or ``key:Effect`` as {key, value, effect}; raise :class:`InvalidName` for anything else."""
    if not isinstance(text, str) or ":" not in text:
        raise InvalidName(f"{text!r} is no taint; write key=value:Effect or key:Effect")
    head, _colon, effect = text.rpartition(":")
    key, _equals, value = head.partition("=")
    if effect not in EFFECTS:
        raise InvalidName(f"{text!r}: the effect {effect!r} must be one of {', '.join(EFFECTS)}")
    check_label_key(key)
    check_label_value(key, value)
    return {"key": key, "value": value, "effect": effect}


def parse_taints(texts: Iterable[Any]) -> list[Taint]:
    """All taints; the same key with the same effect twice raises :class:`InvalidName`."""
    taints, seen = [], set()
    for text in texts:
        taint = parse_taint(text)
        mark = (taint["key"], taint["effect"])
        if mark in seen:
            raise InvalidName("%r: the key %s has the effect %s twice" % ((text,) + mark))
        seen.add(mark)
        taints.append(taint)
    return taints


def check_provider_id(text: str) -> str:
    """Return ``text`` when it is a provider ID such as ``hcloud://123``, else raise :class:`InvalidName`."""
    if not _PROVIDER_ID.match(text):
        raise InvalidName(f"{text!r} is no provider ID; write PROVIDER://ID, such as hcloud://123456")
    scheme, _mark, rest = text.partition("://")
    if scheme in _NUMBERED and not re.match(r"[1-9][0-9]*\Z", rest):
        raise InvalidName(f"{text!r}: after {scheme}:// stands the number of the server")
    return text


def _below(prefix: str, domains: Iterable[str]) -> bool:
    return any(prefix == domain or prefix.endswith("." + domain) for domain in domains)
