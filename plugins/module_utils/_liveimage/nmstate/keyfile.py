# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Keyfiles as text: sections in NetworkManager's usual order, keys sorted, values that cannot leave their line."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ImageError

_SECTIONS = (
    "connection", "bond", "bond-port", "bridge", "bridge-port", "ipv4", "ipv6", "ovs-bridge", "ovs-port",
    "ovs-interface", "ovs-patch", "ovs-dpdk", "ethernet", "vlan", "vxlan", "sriov", "macvlan", "vrf", "veth", "dummy",
    "user", "802-1x", "ethtool", "infiniband", "ovs-external-ids", "ovs-other-config",
)  # fmt: skip


def render(settings: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a keyfile; empty values are left out."""
    parts = []
    for section in sorted(settings, key=_SECTIONS.index):
        lines = ["%s=%s\n" % (key, _value(value)) for key, value in sorted(settings[section].items()) if value]
        parts.append("[%s]\n%s" % (section, "".join(lines)))
    return "\n".join(parts)


def _value(text: str) -> str:
    """A value as GLib's key files escape it."""
    if any(ord(one) < 32 or ord(one) == 127 for one in text):
        raise ImageError("a value of a keyfile has a control character: %s" % ascii(text[:60]))
    escaped = text.replace("\\", "\\\\")
    blanks = len(escaped) - len(escaped.lstrip(" "))
    return "\\s" * blanks + escaped[blanks:]


def flag(value: bool) -> str:
    """A truth value."""
    return "true" if value else "false"
