# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The addresses of a Node: which the kubelet is told to register (pure)."""

from __future__ import annotations

import ipaddress

#: variable → families that are looked for, in the order in which the Node lists them
AUTOMATIC = {"auto4": (4,), "auto6": (6,), "dual": (4, 6)}


class InvalidAddress(ValueError):
    """The address is refused; the text names it and the fix."""


def check_addresses(value):
    """A name of :data:`AUTOMATIC`, or a list of addresses: normalised; raise :class:`InvalidAddress` if neither."""
    if isinstance(value, str):
        if value in AUTOMATIC or not value:
            return value
        value = [part.strip() for part in value.split(",")]
    return [str(_address(part)) for part in value]


def node_addresses(wanted, network):
    """The addresses for ``--node-ip``, an empty list when the kubelet is to choose.

    ``wanted`` is what :func:`check_addresses` returns, ``network`` the part of that name of node_info.
    """
    if not wanted:
        return []
    if isinstance(wanted, str):
        return [_automatic(family, wanted, network) for family in AUTOMATIC[wanted]]
    families = [ipaddress.ip_address(address).version for address in wanted]
    if len(wanted) > 2 or len(set(families)) < len(families):
        raise InvalidAddress("%s: give one address, or one IPv4 and one IPv6 address" % ", ".join(wanted))
    own = {str(_address(entry["address"])) for entry in network.get("addresses", [])}
    for text in wanted:
        address = ipaddress.ip_address(text)
        if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
            raise InvalidAddress("%s is not an address that other machines reach" % text)
        if text not in own:
            raise InvalidAddress(
                "%s is no address of this machine; it has %s" % (text, ", ".join(sorted(own)) or "none")
            )
    return list(wanted)


def _automatic(family, wanted, network):
    default = (network.get("default") or {}).get(str(family)) or {}
    interface = default.get("interface")
    usable = [entry for entry in network.get("addresses", []) if entry.get("family") == family and _global(entry)]
    # of several, the one the default route uses; an address that changes by itself (IPv6 privacy) comes last
    usable.sort(
        key=lambda entry: (
            bool(entry.get("deprecated")),
            entry.get("interface") != interface,
            family == 6 and bool(entry.get("dynamic")) and entry.get("prefix") != 128,
            entry["address"] != default.get("address"),
        )
    )
    if not interface or not usable:
        raise InvalidAddress(
            "%s: this machine has no IPv%d address with a default route; name the address itself" % (wanted, family)
        )
    return str(_address(usable[0]["address"]))


def _global(entry):
    address = _address(entry["address"])
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


def _address(text):
    try:
        # a zone may be any text, and a number is taken for an address
        if not isinstance(text, str) or "%" in text:
            raise ValueError(text)
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise InvalidAddress("%r is no IP address" % (text,)) from error
