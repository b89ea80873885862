# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's wires without machines: a namespace takes the place of one, and is reached by IPv6 and IPv4, or not."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.machines.lab_network import NetNs, Network, PrivatePlace, filter_rules, first_of, link_local

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


@needs_root
def test_a_private_network_leads_to_its_members_alone(tmp_path):
    async def whole():
        network = await Network.open(tmp_path, SimpleNamespace(add=lambda _pid: None))
        outside, *members = NetNs(), NetNs(), NetNs()
        try:
            for number, member in enumerate(members, 2):
                place = PrivatePlace(7, "10.0.0.0/16", f"86:00:00:00:00:{number:02x}", f"10.0.1.{number}")
                await network.join(place, f"m{number}-1", member, "eth1")
                await member.ip("link set lo up", f"addr add 10.0.1.{number}/16 dev eth1", "link set eth1 up")
            first, second = members
            with first.call(lambda: socket.create_server(("10.0.1.2", PORT))):
                await asyncio.to_thread(second.call, lambda: connects("10.0.1.2"))
                # a machine of the lab that is not in it
                await network.attach("m4", network.mac(4), outside)
                await outside.ip(
                    f"addr add {network.address(4)}/24 dev eth0", "link set eth0 up",
                    f"route add default via {network.gateway}",
                )  # fmt: skip
                assert await asyncio.to_thread(outside.call, lambda: is_silent("10.0.1.2"))
            await network.leave(7, "m2-1")
            await network.leave(7, "m2-1")
            hosts = sorted(path.read_text() for path in (tmp_path / "private-7/hosts").iterdir())
            assert hosts == ["86:00:00:00:00:02,10.0.1.2\n", "86:00:00:00:00:03,10.0.1.3\n"]
        finally:
            await network.close()
            for member in (outside, *members):
                member.close()

    asyncio.run(whole())
