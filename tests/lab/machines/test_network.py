# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's wires without machines: a namespace takes the place of one, and is reached by IPv6 and IPv4, or not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.machines.network import NetNs, Network, filter_rules, first_of, link_local

PORT = 2222
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def test_the_link_local_address_of_a_mac_address():
    assert link_local("96:00:00:10:00:01") == "fe80::9400:ff:fe10:1"


def test_a_server_without_ipv4_sends_to_the_metadata_service_alone():
    lines = [line.strip() for line in filter_rules({}, without_ipv4=["m1"]).splitlines() if "m1" in line]
    assert lines == [
        'iifname "m1" ip daddr != { 169.254.169.254, 255.255.255.255 } meta l4proto != udp drop',
        'iifname "m1" ip daddr != { 169.254.169.254, 255.255.255.255 } udp dport != 67 drop',
    ]
    assert "m1" not in filter_rules({})


def connects(address):
    """It accepts a connection; the time is for a busy host."""
    socket.create_connection((address, PORT), timeout=100).close()


def is_silent(address):
    """Nothing accepts a connection there, within the time of two tries."""
    with contextlib.suppress(OSError), socket.create_connection((address, PORT), timeout=3):
        return False
    return True


@needs_root
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this host has no IPv6")
def test_a_machine_is_reached_at_its_addresses_alone(tmp_path):
    async def whole():
        network = await Network.open(tmp_path, SimpleNamespace(add=lambda _pid: None))
        machine = NetNs()
        try:
            mac, ipv6 = network.mac(1), network.ipv6_network(1)
            await network.attach("m1", mac, machine)
            await machine.ip(
                "link set lo up", f"addr add {network.address(1)}/24 dev eth0", "link set eth0 up",
                f"route add default via {network.gateway}",
                f"addr add {first_of(ipv6)}/64 dev eth0 nodad", "route add default via fe80::1 dev eth0",
            )  # fmt: skip
            listener = machine.call(
                lambda: socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)
            )
            with listener:
                await network.give_addresses("m1", mac, ipv4=True, ipv6=ipv6)
                for address in (network.address(1), first_of(ipv6)):
                    await asyncio.to_thread(connects, address)
                await network.give_addresses("m1", mac, ipv4=False, ipv6=ipv6)
                await asyncio.to_thread(connects, first_of(ipv6))
                assert await asyncio.to_thread(is_silent, network.address(1))
                # a primary IP's network comes from elsewhere
                other = network.ipv6_network(0x1000)
                await machine.ip(f"addr add {first_of(other)}/64 dev eth0 nodad")
                assert await asyncio.to_thread(is_silent, first_of(other))
                await network.give_addresses("m1", mac, ipv4=False, ipv6=other)
                await asyncio.to_thread(connects, first_of(other))
            with network.listen(PORT, network.gateway6):
                await asyncio.to_thread(connects, network.gateway6)
        finally:
            await network.close()
            machine.close()

    asyncio.run(whole())
