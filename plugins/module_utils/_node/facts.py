# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The facts of a machine, as node_info returns them and as the plans of base and join read them."""

from __future__ import annotations

from typing import Any, TypedDict


class System(TypedDict, total=False):
    """The operating system, from os-release; what it does not say is empty."""

    id: str
    version_id: str
    id_like: list[str]
    pretty_name: str
    codename: str


class Clock(TypedDict, total=False):
    """The machine's clock (seconds since 1970), and who keeps it: unit → active, inactive or absent."""

    unix: float
    ntp_synchronized: bool | None
    services: dict[str, str]


class Network(TypedDict, total=False):
    """Addresses of all interfaces, and by family ("4", "6") what the default route uses."""

    addresses: list[dict[str, Any]]
    default: dict[str, dict[str, Any] | None]


class File(TypedDict):
    """A path: its type (file, directory, link, other), SHA-256, mode as four octal digits, size in bytes."""

    exists: bool
    type: str | None
    sha256: str | None
    mode: str | None
    size: int | None


class Binary(TypedDict):
    """Where a program lies, and the version that it says; None when it says none."""

    path: str
    version: str | None


class Node(TypedDict, total=False):
    """A machine. Sizes are in bytes; ``packages``, ``binaries`` and ``files`` have what was asked for."""

    os: System
    arch: str
    kernel: str
    systemd: int | None
    cgroup: int
    container: bool
    virtualization: str
    python: str
    package_manager: str
    read_only_usr: bool
    selinux: str
    firewall: dict[str, str]
    cpus: int
    memory_bytes: int
    disk_free: dict[str, int]
    time: Clock
    swaps: list[dict[str, Any]]
    machine_id: str
    boot_id: str
    hostname: str
    uid: int
    in_rescue: bool
    network: Network
    #: file → its name servers
    resolv: dict[str, list[str]]
    #: package → version, None when it is not installed
    packages: dict[str, str | None]
    candidates: dict[str, str | None]
    held: list[str]
    binaries: dict[str, Binary | None]
    units: dict[str, dict[str, Any]]
    files: dict[str, File]
    sysctls: dict[str, str | None]
    modules: dict[str, str]
    #: artifact → what its record and its files say
    artifacts: dict[str, Any]
    #: /etc/kubenode/base.json, None when base was not on the machine
    base: dict[str, Any] | None
    #: the kubelet that base would install, in check mode (written by the role join)
    assumed_kubelet: str
