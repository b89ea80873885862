# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of one lab: a namespace with a bridge, DHCP with fixed leases, and one leg in the host's namespace.

198.18.N.0/24 (a range reserved for tests): .1 the lab (services, 169.254.169.254 beside it), .254 the host
(the Ansible controller), the machines from .2 on. 2001:db8:N::/48 (for documentation): a network of 64 bits for each
machine, routed to the link-local address of its MAC address, with the gateway fe80::1 as on the platform; the host
has a route to all of it.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import ipaddress
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from lab.errors import LabError

from .cgroup import CGroup
from .host_commands import run

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
METADATA = "169.254.169.254"
MACHINES = 252
_INDEXES = range(1, MACHINES + 1)
_LOCKS = Path("/run/lock")
_DHCP_SECONDS = 180  # until the DHCP server must have started; a moment on an idle host
_SUBNETS = (16, 256)


class NetNs:
    """A network namespace of its own, held open by this process."""

    def __init__(self) -> None:
        """Make a new one (needs root)."""

        def make() -> int:
            _checked(_libc.unshare(_CLONE_NEWNET), "unshare")
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        self._fd = _in_thread(make)

    @property
    def path(self) -> str:
        """A path that other processes of this user can open."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def call(self, function: Callable[[], T]) -> T:
        """The result of ``function`` run inside: sockets made there stay there."""

        def inside() -> T:
            _checked(_libc.setns(self._fd, _CLONE_NEWNET), "setns")
            return function()

        return _in_thread(inside)

    def command(self, *command: str) -> list[str]:
        """The command line that runs ``command`` inside."""
        return ["nsenter", f"--net={self.path}", "--", *command]

    async def ip(self, *lines: str) -> None:
        """Run lines of ``ip`` commands inside."""
        await run(*self.command("ip", "-batch", "-"), text="\n".join(lines) + "\n")

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _checked(result: int, call: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise LabError(f"{call} of a network namespace failed: {os.strerror(code)} (the lab's network needs root)")


def _in_thread(function: Callable[[], T]) -> T:
    """Run in a thread that ends afterwards: the namespace of a thread is the thread's own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


@dataclass(frozen=True)
class PrivatePlace:
    """Where a machine is in a private network: the network's number and range, and what the machine has there."""

    network: int
    block: str
    mac: str
    ip: str


@dataclass(frozen=True)
class BadLine:
    """A bad line: how many packets of a hundred are lost on each way, and kilobytes a second (0: no limit)."""

    loss: int = 0
    kbytes: int = 0

    def rules(self, port: str, way: str) -> list[str]:
        """The rules for what comes from a bridge port (``iifname``) or goes there (``oifname``)."""
        lost = [f'    {way} "{port}" numgen random mod 100 < {self.loss} drop'] if self.loss else []
        # what a policer drops, TCP sends again, and more slowly
        limit = f"limit rate over {self.kbytes} kbytes/second burst {self.kbytes // 4 + 64} kbytes"
        return lost + ([f'    {way} "{port}" {limit} drop'] if self.kbytes else [])


def filter_rules(
    isolated: Mapping[str, tuple[str, ...]],
    silent: Collection[str] = (),
    poor: Mapping[str, BadLine] | None = None,
    without_ipv4: Collection[str] = (),
) -> str:
    """A script for ``nft -f`` that replaces all rules: bridge port → the IPv4 addresses it may send to.

    Nothing reaches the sshd of a machine whose port is among ``silent``, and nothing comes from there. ``poor``: the
    ports with a bad line. ``without_ipv4``: those of servers that have no public IPv4 address; they get one by DHCP, as
    they need it for the metadata service, and send to that service alone.
    """
    bad = sorted((poor or {}).items())
    lines = [f'    iifname "{port}" tcp sport 22 drop' for port in sorted(silent)]
    lines += [line for port, line_of in bad for line in line_of.rules(port, "iifname")]
    lines += [line for port in sorted(without_ipv4) for line in _metadata_only(port)]
    lines += [line for port, allow in sorted(isolated.items()) for line in _isolation_rules(port, allow)]
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


def _metadata_only(port: str) -> list[str]:
    others = f'    iifname "{port}" ip daddr != {{ {METADATA}, 255.255.255.255 }}'
    return [f"{others} meta l4proto != udp drop", f"{others} udp dport != 67 drop"]


def _isolation_rules(port: str, allow: tuple[str, ...]) -> list[str]:
    for address in allow:
        try:
            ipaddress.IPv4Address(address)
        except ValueError as error:
            raise LabError(f"{address!r} is no IPv4 address; machines can be cut off from addresses only") from error
    accepted = ["ether type arp", "udp sport 68 udp dport 67"]
    if allow:
        accepted.append(f"ip daddr {{ {', '.join(allow)} }}")
    return [*(f'    iifname "{port}" {what} accept' for what in accepted), f'    iifname "{port}" drop']


class _Bridge:
    """A network namespace with a bridge, a DHCP server, and the cables of machines."""

    def __init__(self) -> None:
        self._ns = NetNs()
        self._dnsmasq: asyncio.subprocess.Process | None = None

    async def detach(self, port: str) -> None:
        """Pull the cable out of the bridge; nothing happens when there is none."""
        if self._ns.call(lambda: _is_there(port)):
            await self._ns.ip(f"link del {port}")

    async def close(self) -> None:
        """Take everything down; the namespace ends with the last process in it."""
        if self._dnsmasq and self._dnsmasq.returncode is None:
            self._dnsmasq.kill()
            await self._dnsmasq.wait()
        self._ns.close()


class Network(_Bridge):
    """The lab's wires; `attach` plugs a machine in."""

    def __init__(self, number: int, lock: TextIO, folder: Path, services: CGroup) -> None:
        """Use `Network.open`."""
        super().__init__()
        self.number = number
        self.gateway = f"198.18.{number}.1"
        self.controller = f"198.18.{number}.254"
        self.host_link = _link(number)
        #: Whether the host's kernel has IPv6.
        self.ipv6 = Path("/proc/net/if_inet6").exists()
        self.gateway6 = f"2001:db8:{number:x}::1" if self.ipv6 else ""
        self._lock = lock
        self._folder = folder
        self._isolated: dict[str, tuple[str, ...]] = {}
        self._silent: set[str] = set()
        self._poor: dict[str, BadLine] = {}
        self._without_ipv4: set[str] = set()
        self._services = services
        self._private: dict[int, PrivateNetwork] = {}
        self._joining = asyncio.Lock()

    @classmethod
    async def open(cls, folder: Path, services: CGroup) -> Network:
        """Take a free subnet and build the network; ``folder`` holds the DHCP server's files."""
        number, lock = await _free_subnet()
        network = cls(number, lock, folder, services)
        try:
            await network._build()
            await network._start_dhcp(services)
        except BaseException:
            await network.close()
            raise
        return network

    def address(self, index: int) -> str:
        if not 1 <= index <= MACHINES:
            raise LabError(
                f"machine index {index} is not within 1..{MACHINES}: one lab's subnet is full, use a second lab"
            )
        return f"198.18.{self.number}.{index + 1}"

    def ipv6_network(self, index: int) -> str:
        """IPv6 network of the machine with this index; the lab's own is that of 0."""
        return f"2001:db8:{self.number:x}:{index:x}::/64"

    def mac(self, index: int) -> str:
        """MAC address of the machine with this index."""
        return f"96:00:00:{self.number:02x}:00:{index:02x}"

    def listen(self, port: int, host: str) -> socket.socket:
        """A TCP socket listening inside the lab's namespace."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return self._ns.call(lambda: socket.create_server((host, port), family=family, backlog=1024))

    def command(self, *command: str) -> list[str]:
        """The command line that runs ``command`` inside the lab's namespace."""
        return self._ns.command(*command)

    async def attach(self, port: str, mac: str, ns: NetNs) -> None:
        """Plug a cable from the bridge's ``port`` into ``eth0`` of the namespace ``ns``."""
        await self._ns.ip(
            f"link add {port} type veth peer name eth0 address {mac} netns {ns.path}", f"link set {port} master lab up"
        )

    async def give_addresses(self, port: str, mac: str, *, ipv4: bool, ipv6: str) -> None:
        """Let the machine at ``port`` be reached at its IPv4 address or not, and route this IPv6 network to it."""
        if self.ipv6 and ipv6:
            await self._ns.ip(f"route replace {ipv6} via {link_local(mac)} dev lab")
        if ipv4 == (port in self._without_ipv4):
            self._without_ipv4 ^= {port}
            await self._filter(self._isolated, self._silent, self._poor)

    async def add_tap(self, port: str) -> None:
        """A tap device on the bridge, for a virtual machine that runs inside the lab's namespace."""
        await self._ns.ip(f"tuntap add dev {port} mode tap", f"link set {port} master lab up")

    async def isolate(self, port: str, allow: tuple[str, ...] | None) -> None:
        """Let the machine at ``port`` send to these addresses only; None: to everyone again."""
        isolated = {name: addresses for name, addresses in self._isolated.items() if name != port}
        if allow is not None:
            isolated[port] = allow
        await self._filter(isolated, self._silent, self._poor)

    async def silence(self, port: str, on: bool) -> None:
        """Drop everything between the SSH server of the machine at ``port`` and the others, or nothing more."""
        silent = self._silent | {port} if on else self._silent - {port}
        await self._filter(self._isolated, silent, self._poor)

    async def worsen(self, port: str, line: BadLine) -> None:
        """Give the machine at ``port`` a bad line, or a good one."""
        poor = {name: other for name, other in self._poor.items() if name != port}
        if line != BadLine():
            poor[port] = line
        await self._filter(self._isolated, self._silent, poor)

    async def _filter(self, isolated: dict[str, tuple[str, ...]], silent: set[str], poor: dict[str, BadLine]) -> None:
        await run(*self.command("nft", "-f", "-"), text=filter_rules(isolated, silent, poor, self._without_ipv4))
        self._isolated, self._silent, self._poor = isolated, silent, poor

    async def close(self) -> None:
        for private in self._private.values():
            await private.close()
        if _is_there(self.host_link):
            await run("ip", "link", "del", self.host_link)
        await super().close()
        self._lock.close()

    async def _build(self) -> None:
        await self._ns.ip(
            "link set lo up",
            # Without a MAC address of its own, a bridge takes the lowest one of its ports. It changed when a machine
            # started or stopped, and machines with the old ARP entry did not reach the lab for a minute.
            f"link add lab address {self.mac(0)} type bridge forward_delay 0 stp_state 0",
            f"addr add {self.gateway}/24 dev lab",
            f"addr add {METADATA}/32 dev lab",
            "link set lab up",
            f"link add uplink type veth peer name {self.host_link} netns /proc/{os.getpid()}/ns/net",
            "link set uplink master lab up",
        )
        await run("ip", "addr", "add", f"{self.controller}/24", "dev", self.host_link)
        await run("ip", "link", "set", self.host_link, "up")
        # No ARP request is sent, so that packets to a machine that is off vanish, as they do on the platform.
        await self._ns.ip(*self._neighbours("lab"))
        await run("ip", "-batch", "-", text="\n".join(self._neighbours(self.host_link)) + "\n")
        if self.ipv6:
            await self._build_ipv6()
        # Packets to the rest of the world are refused at once instead of vanishing.
        self._ns.call(lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"))

    async def _build_ipv6(self) -> None:
        await self._ns.ip(
            f"addr add {self.gateway6}/64 dev lab nodad",
            "addr add fe80::1/64 dev lab nodad",
            *(f"neigh replace {link_local(self.mac(n))} lladdr {self.mac(n)} dev lab nud permanent" for n in _INDEXES),
            *(f"route replace {self.ipv6_network(n)} via {link_local(self.mac(n))} dev lab" for n in _INDEXES),
        )
        self._ns.call(lambda: Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1"))
        host = f"2001:db8:{self.number:x}::fe"
        await run("ip", "addr", "add", f"{host}/64", "dev", self.host_link, "nodad")
        ours = f"2001:db8:{self.number:x}::/48"
        await run("ip", "-6", "route", "replace", ours, "via", self.gateway6, "dev", self.host_link)

    def _neighbours(self, link: str) -> list[str]:
        """Every machine that there can be, known at ``link`` permanently."""
        return [f"neigh replace {self.address(n)} lladdr {self.mac(n)} dev {link} nud permanent" for n in _INDEXES]

    async def _start_dhcp(self, services: CGroup) -> None:
        """One DHCP server with a fixed lease for every machine that the subnet can hold."""
        hosts = self._folder / "dhcp-hosts"
        hosts.write_text("".join(f"{self.mac(index)},{self.address(index)}\n" for index in _INDEXES))
        self._dnsmasq = await _dhcp_server(
            self._ns, self._folder / "dhcp", services, "--interface=lab",
            f"--dhcp-range=198.18.{self.number}.0,static,255.255.255.0,12h", f"--dhcp-hostsfile={hosts}",
            f"--dhcp-option=option:router,{self.gateway}",
        )  # fmt: skip

    async def join(self, place: PrivatePlace, port: str, ns: NetNs, link: str) -> None:
        """Plug a cable from a private network into ``link`` of the namespace ``ns``."""
        async with self._joining:
            if place.network not in self._private:
                folder = self._folder / f"private-{place.network}"
                self._private[place.network] = await PrivateNetwork.open(place.block, folder, self._services)
        await self._private[place.network].join(place, port, ns, link)

    async def leave(self, network: int, port: str) -> None:
        """Pull a cable out of a private network."""
        if network in self._private:
            await self._private[network].detach(port)


class PrivateNetwork(_Bridge):
    """The wires of one private network: a namespace of its own, where nothing else leads to, with a bridge and DHCP."""

    def __init__(self, block: ipaddress.IPv4Network, folder: Path) -> None:
        """Use `PrivateNetwork.open`."""
        super().__init__()
        self._block = block
        self._hosts = folder / "hosts"

    @classmethod
    async def open(cls, block: str, folder: Path, services: CGroup) -> PrivateNetwork:
        """Build the network of this range."""
        network = cls(ipaddress.IPv4Network(block), folder)
        network._hosts.mkdir(parents=True, exist_ok=True)
        gateway, length = network._block.network_address + 1, network._block.prefixlen
        await network._ns.ip(
            "link set lo up", "link add net type bridge forward_delay 0 stp_state 0",
            f"addr add {gateway}/{length} dev net", "link set net up",
        )  # fmt: skip
        network._dnsmasq = await _dhcp_server(
            network._ns, folder / "dhcp", services, "--interface=net",
            f"--dhcp-range={network._block.network_address},static,{network._block.netmask},12h",
            f"--dhcp-hostsdir={network._hosts}", "--dhcp-option=option:router",
        )  # fmt: skip
        return network

    async def join(self, place: PrivatePlace, port: str, ns: NetNs, link: str) -> None:
        """Plug a cable in; DHCP gives the address."""
        await self.detach(port)
        (self._hosts / port).write_text(f"{place.mac},{place.ip}\n")
        await self._ns.ip(
            f"link add {port} type veth peer name {link} address {place.mac} netns {ns.path}",
            f"link set {port} master net up",
        )


async def _dhcp_server(ns: NetNs, base: Path, services: CGroup, *arguments: str) -> asyncio.subprocess.Process:
    """A DHCP server in a namespace, when it has started; ``base``: its files begin with this."""
    log = base.with_name(f"{base.name}.log")
    command = [
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file=", "--port=0",
        "--except-interface=lo", "--bind-interfaces", "--no-ping", "--dhcp-authoritative", "--dhcp-rapid-commit",
        f"--dhcp-leasefile={base}-leases", f"--log-facility={log}", "--dhcp-option=option:dns-server", *arguments,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *ns.command(*command),
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    services.add(process.pid)
    deadline = time.monotonic() + _DHCP_SECONDS
    while time.monotonic() < deadline:
        if process.returncode is not None:
            err = (await process.communicate())[1].decode(errors="replace").strip()
            raise LabError(f"dnsmasq (the lab's DHCP server) ended at once: {err or log.read_text()[-500:]}")
        if log.exists() and "started" in log.read_text():
            return process
        await asyncio.sleep(0.02)
    process.kill()
    raise LabError(f"dnsmasq (the lab's DHCP server) did not start within {_DHCP_SECONDS} s; see {log}")


def link_local(mac: str) -> str:
    """The link-local IPv6 address that a kernel makes of a MAC address."""
    parts = [int(part, 16) for part in mac.split(":")]
    parts[0] ^= 2
    whole = bytes([0xFE, 0x80, *[0] * 6, *parts[:3], 0xFF, 0xFE, *parts[3:]])
    return str(ipaddress.IPv6Address(whole))


def first_of(network: str) -> str:
    """The address that a server has in its IPv6 network."""
    return str(ipaddress.IPv6Network(network)[1])


def _is_there(link: str) -> bool:
    """Whether the network namespace of this thread has such a link."""
    return link in {name for _index, name in socket.if_nameindex()}


async def _free_subnet() -> tuple[int, TextIO]:
    """The first subnet that no live lab holds and no interface of the host has."""
    taken = {
        address["local"]
        for link in json.loads(await run("ip", "-json", "-4", "addr"))
        for address in link.get("addr_info", [])
        if not link["ifname"].startswith("knlab")
    }
    for number in range(*_SUBNETS):
        if any(address.startswith(f"198.18.{number}.") for address in taken):
            continue
        lock = _lock(number)
        if lock is None:
            continue
        await _remove_dead(_link(number))  # of a lab that died: its lock was free
        return number, lock
    raise LabError("no free subnet among 198.18.16.0/24 … 198.18.255.0/24: end labs that are not needed any more")


async def remove_dead_links() -> list[str]:
    """Remove the host's legs of networks whose labs are gone; returns their names."""
    present = {name for _index, name in socket.if_nameindex()}
    removed = []
    for number in range(*_SUBNETS):
        if _link(number) not in present:
            continue
        lock = _lock(number)
        if lock is not None:
            with lock:
                await _remove_dead(_link(number))
            removed.append(_link(number))
    return removed


async def _remove_dead(link: str) -> None:
    """Remove a link if it is there; it may go by itself with the last process of its lab."""
    try:
        if _is_there(link):
            await run("ip", "link", "del", link)
    except LabError:
        if _is_there(link):
            raise


def _link(number: int) -> str:
    return f"knlab{number}"


def _lock(number: int) -> TextIO | None:
    """The lock of a subnet; None while a lab holds it."""
    lock = (_LOCKS / f"kubenode-lab-net-{number}").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
