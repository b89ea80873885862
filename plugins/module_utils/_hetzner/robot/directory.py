# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which server of the account is which machine of the input (pure), and the addresses of a server."""

from __future__ import annotations

import ipaddress

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import Refused

#: What may be done to a server that is powered when we cannot tell what it runs.
#: ``once``: a word that may be left over; it counts until a run has met the machine.
REFUSE, RESET, ONCE = FIRST_CONTACT = ("refuse", "reset", "once")


def read_servers(api, deadline):
    """All servers of the account, for one request."""
    servers = api.read_list("/server", "server", deadline)
    numbered = [server for server in servers if server.get("server_number") is not None]
    return [server for server in numbered if number_of(server) == server["server_number"]]


def input_findings(machines):
    """Everything that is wrong with what ``machines`` (dictionaries) say of their servers, as a list of sentences."""
    findings = []
    seen: dict[tuple[str, object], str] = {}
    for machine in machines:
        name, number, address = machine.get("name"), machine.get("server_number"), machine.get("server_ip")
        if number is not None and number_of(machine) is None:
            findings.append(
                "machine '%s': server_number: %r is no number of a server; use the number that Robot shows, such as "
                "321" % (name, number)
            )
        if address is not None and not _is_address(address):
            findings.append("machine '%s': server_ip: %r is no IP address" % (name, address))
        if machine.get("first_contact") not in (None, *FIRST_CONTACT):
            findings.append(
                "machine '%s': first_contact: %r is none of %s; use reset to permit that a "
                "server is reset although we cannot tell what it runs"
                % (name, machine["first_contact"], ", ".join(FIRST_CONTACT))
            )
        for field, value in (("server_number", number_of(machine)), ("server_ip", address)):
            other = seen.setdefault((field, value), name) if value is not None else name
            if other != name:
                findings.append("machine '%s': %s: %s is the one of machine '%s' too" % (name, field, value, other))
    return findings


def number_of(machine):
    """The server number a machine of the input names; None when it names none that can be one."""
    number = machine.get("server_number")
    if isinstance(number, str):
        number = whole_number(number)
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def find(machine, servers):
    """The server of ``machine`` by number, address or name, in this order; raises Refused.

    When number and address are both given they must name the same server.
    """
    number, address = number_of(machine), machine.get("server_ip")
    if number is not None:
        found, what = [server for server in servers if server.get("server_number") == number], "number %d" % number
    elif address is not None:
        found, what = [server for server in servers if _has(server, address)], "address %s" % address
    else:
        found = [server for server in servers if server.get("server_name") == machine["name"]]
        what = "name '%s'" % machine["name"]
    if not found:
        raise Refused(
            "the Robot account has no server with the %s; set server_number or server_ip of machine '%s' right, or use "
            "the webservice user of the account that has it" % (what, machine["name"])
        )
    if len(found) > 1:
        numbers = ", ".join(str(server.get("server_number")) for server in found)
        raise Refused(
            "the servers %s all have the %s; set server_number of machine '%s'" % (numbers, what, machine["name"])
        )
    if number is not None and address is not None and not _has(found[0], address):
        raise Refused("server %d does not have the server_ip %s; correct one of the two" % (number, address))
    return found[0]


def facts(server):
    """What every result says of a server."""
    ipv4, ipv6 = server.get("server_ip"), server.get("server_ipv6_net")
    address = rescue_address(ipv6)
    return {
        "server_number": server.get("server_number"),
        "server_name": _text(server.get("server_name")),
        # Programs are called with it.
        "ipv4": ipv4 if _is_address(ipv4) else None,
        "ipv6": "%s/64" % ipv6 if address else None,
        "ipv6_address": address,
        "product": _text(server.get("product")),
    }


def _text(value):
    return value if isinstance(value, str) else None


def rescue_address(network):
    """The address a server has in its IPv6 network, which Robot gives without its length: ``2001:db8::`` → ::2."""
    if not _is_address(network) or ":" not in network:
        return None
    try:
        return str(ipaddress.IPv6Address(network) + 2)
    except ValueError:
        # the last address of all has none behind it
        return None


def _has(server, address):
    addresses = [server.get("server_ip"), rescue_address(server.get("server_ipv6_net"))]
    return any(_same(address, other) for other in addresses if other)


def _same(one, other):
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return False


def _is_address(text):
    if not isinstance(text, str):
        return False
    try:
        # A zone may be anything, and no address of a server has one.
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
