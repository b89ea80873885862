# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of a lab: network, disks and images for its machines, of one kind."""

from __future__ import annotations

import abc
import os
import socket
from collections.abc import Callable
from pathlib import Path

from lab.cache import Progress, quiet
from lab.errors import LabError
from lab.machines import KINDS

from .base import BootSource, Hardware, Machine


class Backend(abc.ABC):
    """Network, disks and images for the machines of one lab, of one kind. Open one with `open_backend`."""

    kind: str
    gateway: str  # address at which machines reach the lab's services
    gateway6 = ""  # the same by IPv6, where there is any
    controller: str  # address at which machines reach the host
    share: Path | None = None  # rescues that boot from now on offer this folder as /root/.oldroot/nfs

    @abc.abstractmethod
    def address(self, index: int) -> str:
        """IPv4 address of the index-th machine, from 1."""

    @abc.abstractmethod
    def ipv6_network(self, index: int) -> str:
        """IPv6 network of the index-th machine; its first address is the machine's."""

    @abc.abstractmethod
    def mac(self, index: int) -> str:
        """MAC address of the index-th machine."""

    @abc.abstractmethod
    def listen(self, port: int, host: str | None = None) -> socket.socket:
        """A TCP socket listening inside the lab's network, on the gateway address unless ``host`` says otherwise."""

    @abc.abstractmethod
    def machine(self, hardware: Hardware, firmware: Callable[[], BootSource], on_off: Callable[[], None]) -> Machine:
        """A new machine: no disk yet, power off."""

    @abc.abstractmethod
    async def isolate(self, machine: Machine, allow: tuple[str, ...] | None) -> None:
        """Let a machine send to these IPv4 addresses only (and ask for its own by DHCP); None: to everyone again.

        It stays so over reboots. Addresses that want to talk to the machine must be allowed, too.
        """

    @abc.abstractmethod
    async def silence(self, machine: Machine, on: bool) -> None:
        """Drop all packets from and to a machine's SSH server, so that it neither answers nor refuses; or no longer."""

    @abc.abstractmethod
    async def worsen(self, machine: Machine, loss: int, kbytes: int) -> None:
        """Lose this share of a machine's packets, in percent, and more above a rate in kilobytes a second; 0: none."""

    def adopt(self, pid: int) -> None:
        """A process beside the machines: where these really boot, it ends with the lab however that ends."""
        del pid

    @property
    @abc.abstractmethod
    def disks(self) -> Path:
        """The folder of the disks; images kept here are copied to machines without moving bytes."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Everything is gone afterwards: machines, processes, mounts, devices, namespaces. Safe to call twice."""


async def open_backend(kind: str, name: str, state_dir: Path, progress: Progress = quiet) -> Backend:
    """Open the lab ``name`` of a kind; what an earlier lab of that name left behind is removed first."""
    if kind not in KINDS:
        raise LabError(f"machine kind {kind!r} is not one of {', '.join(KINDS)}")
    state_dir.mkdir(parents=True, exist_ok=True)
    if kind == "dry":
        from .dry import DryBackend

        return await DryBackend.open(state_dir)
    if os.geteuid() != 0:
        raise LabError(f"machines of kind {kind} need root (for their network and disks); run as root or use kind dry")
    from .boot_backend import BootBackend

    return await BootBackend.open(kind, name, state_dir, progress)


def best_kind(progress: Progress = quiet) -> tuple[str, str]:
    """The kind of machine that suits this host, and why in one sentence."""
    from .host import find
    from .qemu import kvm_works

    root = os.geteuid() == 0
    if not root:
        return "dry", "machines that boot need root for their network and disks; without it only power states are kept"
    if find("qemu-system-x86_64"):
        good, reason = kvm_works(progress)
        if good:
            return "qemu", reason
    else:
        reason = "QEMU is not installed"
    if find("systemd-nspawn"):
        return "nspawn", f"containers, because {reason}"
    if find("qemu-system-x86_64"):
        return "qemu", f"virtual machines without hardware help (slow), because {reason} and systemd-nspawn is missing"
    raise LabError("this host can run no machines; run: apt-get install systemd-container dnsmasq-base iproute2")
