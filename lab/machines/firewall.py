# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of nftables by which the lab's bridge cuts machines off, or their sshd alone (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

from .host import LabError


def rules(isolated: Mapping[str, tuple[str, ...]], silent: Collection[str] = ()) -> str:
    """A script for ``nft -f`` that replaces all rules: bridge port → the IPv4 addresses it may send to.

    Nothing reaches the sshd of a machine whose port is among ``silent``, and nothing comes from there.
    """
    lines = [f'    iifname "{port}" tcp sport 22 drop' for port in sorted(silent)]
    lines += [line for port, allow in sorted(isolated.items()) for line in _port(port, allow)]
    # Deleting a table that does not exist is an error, adding one that does is none.
    return "\n".join([
        "add table bridge lab",
        "delete table bridge lab",
        "table bridge lab {",
        "  chain sent {",
        "    type filter hook prerouting priority 0; policy accept;",
        *lines,
        "  }",
        "  chain received {",
        "    type filter hook postrouting priority 0; policy accept;",
        *(f'    oifname "{port}" tcp dport 22 drop' for port in sorted(silent)),
        "  }",
        "}",
        "",
    ])  # fmt: skip


def _port(port: str, allow: tuple[str, ...]) -> list[str]:
    for address in allow:
        try:
            ipaddress.IPv4Address(address)
        except ValueError as error:
            raise LabError(f"{address!r} is no IPv4 address; machines can be cut off from addresses only") from error
    accepted = ["ether type arp", "udp sport 68 udp dport 67"]
    if allow:
        accepted.append(f"ip daddr {{ {', '.join(allow)} }}")
    return [*(f'    iifname "{port}" {what} accept' for what in accepted), f'    iifname "{port}" drop']
