# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of an account as Robot shows them (pure)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from .model import Activation, Dedicated, Key

_ZONE = ZoneInfo("Europe/Berlin")

#: What can be chosen for each kind of boot configuration: field of the answer, values on offer.
CHOICES: dict[str, dict[str, list[Any]]] = {
    "rescue": {"os": ["linux", "linuxold", "vkvm"], "arch": [64, 32]},
    "linux": {"dist": ["Debian 12 base", "Ubuntu 24.04 LTS base"], "arch": [64], "lang": ["en", "de"]},
    "vnc": {"dist": ["Debian-12", "Fedora-42"], "arch": [64], "lang": ["en_US", "de_DE"]},
}


def moment(seconds: float | None) -> str | None:
    """A point in time as Robot writes it: local time of Berlin, to the second, without a zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds, _ZONE).strftime("%Y-%m-%d %H:%M:%S")


def identity(server: Dedicated) -> dict[str, Any]:
    """The three fields with which most answers begin."""
    return {"server_ip": server.ipv4, "server_ipv6_net": server.ipv6_net, "server_number": server.number}


def server_item(server: Dedicated) -> dict[str, Any]:
    """A server in the list."""
    return {
        **identity(server),
        "server_name": server.name,
        "product": server.spec.product,
        "dc": server.spec.dc,
        "traffic": "unlimited",
        "status": "ready",
        "cancelled": False,
        "paid_until": "2099-12-31",
        "ip": [server.ipv4],
        "subnet": [{"ip": server.ipv6_net, "mask": "64"}],
    }


def server_details(server: Dedicated) -> dict[str, Any]:
    """A server on its own."""
    return {
        **server_item(server),
        "reset": bool(server.spec.reset),
        "rescue": server.offers("rescue"),
        "vnc": server.offers("vnc"),
        "windows": server.offers("windows"),
        "plesk": server.offers("plesk"),
        "cpanel": server.offers("cpanel"),
        "wol": server.spec.wol,
        "hot_swap": False,
        "linked_storagebox": None,
    }


def reset_item(server: Dedicated) -> dict[str, Any]:
    return {**identity(server), "type": list(server.spec.reset)}


def key(item: Key) -> dict[str, Any]:
    """An SSH key of the account."""
    return {**_key_item(item), "data": item.data}


def boot(server: Dedicated, kind: str, now: float) -> dict[str, Any] | None:
    """One kind of boot configuration at present, or None when the server does not have it."""
    if not server.offers(kind):
        return None
    last = server.last.get(kind)
    return configuration(server, kind, last if last is not None and last.active(now) else None, now)


def configuration(server: Dedicated, kind: str, activation: Activation | None, now: float) -> dict[str, Any]:
    """An activation, or what could be chosen: the same fields hold a value, or the list of values."""
    result = identity(server)
    if activation is None:
        result |= {name: list(values) for name, values in CHOICES[kind].items()}
        result |= {"active": False, "password": None}
    else:
        chosen = {"os": activation.system, "dist": activation.system, "arch": activation.arch, "lang": activation.lang}
        result |= {name: chosen[name] for name in CHOICES[kind]}
        result |= {"active": activation.active(now), "password": activation.password}
    if kind != "vnc":
        keys = () if activation is None else activation.keys
        shown = () if activation is None else activation.shown
        result["authorized_key"] = [{"key": _key_item(item)} for item in keys]
        result["host_key"] = [{"key": asdict(item)} for item in shown]
    if kind == "rescue":
        result["boot_time"] = None if activation is None else moment(activation.booted)
    return result


def _key_item(item: Key) -> dict[str, Any]:
    return {
        "name": item.name,
        "fingerprint": item.fingerprint,
        "type": item.type,
        "size": item.size,
        "created_at": moment(item.created),
    }
