# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of nftables by which the lab's bridge cuts machines off, or their sshd alone, or loses packets (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .host import LabError


@dataclass(frozen=True)
class Poor:
    """A bad line: how many packets of a hundred are lost on each way, and kilobytes a second (0: no limit)."""

    loss: int = 0
    kbytes: int = 0

    def rules(self, port: str, way: str) -> list[str]:
        """The rules for what comes from a bridge port (``iifname``) or goes there (``oifname``)."""
        lost = [f'    {way} "{port}" numgen random mod 100 < {self.loss} drop'] if self.loss else []
        # what a policer drops, TCP sends again, and more slowly
        limit = f"limit rate over {self.kbytes} kbytes/second burst {self.kbytes // 4 + 64} kbytes"
        return lost + ([f'    {way} "{port}" {limit} drop'] if self.kbytes else [])


def rules(
    isolated: Mapping[str, tuple[str, ...]], silent: Collection[str] = (), poor: Mapping[str, Poor] | None = None
) -> str:
    """A script for ``nft -f`` that replaces all rules: bridge port → the IPv4 addresses it may send to.

    Nothing reaches the sshd of a machine whose port is among ``silent``, and nothing comes from there. ``poor``: the
    ports with a bad line.
    """
    bad = sorted((poor or {}).items())
    lines = [f'    iifname "{port}" tcp sport 22 drop' for port in sorted(silent)]
    lines += [line for port, line_of in bad for line in line_of.rules(port, "iifname")]
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
        *(line for port, line_of in bad for line in line_of.rules(port, "oifname")),
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
