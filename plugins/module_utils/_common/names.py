# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The one rule for the names of machines (pure).

A machine's name is its host name, the name of its server, the value of a label, the name of files on the controller and
an argument of programs. Hetzner Cloud wants a host name by RFC 1123, a label holds 63 characters, a Node's name is in
lower case; Robot takes any text.
"""

from __future__ import annotations

import ipaddress
import re

#: The longest value of a label, of Hetzner Cloud and of Kubernetes.
LONGEST = 63
#: What is no machine's own: the name every rescue has, and every machine's name for itself.
RESERVED = ("rescue", "localhost")

_PART = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
#: A host name by RFC 1123 in lower case, of any length; for fullmatch.
HOST_NAME = re.compile(rf"{_PART}(?:\.{_PART})*", re.ASCII)
#: What a label's key is behind its prefix, and a value that is not empty: of Hetzner Cloud and of Kubernetes.
LABEL_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ADDRESS = re.compile(r"[0-9]+(?:\.[0-9]+){3}", re.ASCII)


class InvalidName(ValueError):
    """The name is refused; the text says why and what would be taken."""


def machine_error(name: object) -> str | None:
    """Why a machine cannot have this name, and what would do; None when it can."""
    if not isinstance(name, str) or not name:
        return "it is no name; give a host name such as node-1"
    if HOST_NAME.fullmatch(name) is None:
        if HOST_NAME.fullmatch(name.lower()) is not None:
            return f"it has capital letters, which some see as another name; use {name.lower()[:LONGEST]}"
        return (
            "it is no host name (RFC 1123); use lower-case letters, digits and '-', with '.' between parts that begin "
            f"and end with a letter or digit, at most {LONGEST} characters"
        )
    if len(name) > LONGEST:
        return f"it has {len(name)} characters, a label of a server holds {LONGEST}; use a shorter one"
    if _ADDRESS.fullmatch(name):
        return "it is an address; give the machine a name and put the address into ansible_host"
    if name.partition(".")[0] in RESERVED:
        return (
            f"{name.partition('.')[0]} is what every rescue or every machine calls itself, "
            "so the name would prove nothing; use another name"
        )
    return None


def is_host_name(name: str) -> bool:
    """Whether it is a host name by RFC 1123, short or qualified and in any case."""
    return name.isascii() and len(name) <= 253 and HOST_NAME.fullmatch(name.lower()) is not None


def is_command_name(name: str) -> bool:
    """Whether an image command takes this machine name: all that :func:`machine_error` takes, and those of CAPH."""
    return is_host_name(name) and _ADDRESS.fullmatch(name) is None


def host_name_error(name: object) -> str | None:
    """Why no machine can have this host name (RFC 1123), short or qualified and in any case; None when one can."""
    if isinstance(name, str) and is_host_name(name):
        _head, dot, last = name.rpartition(".")
        # What looks like an address has a number at its end.
        if not dot or last.strip("0123456789"):
            return None
    return (
        "it is no host name (RFC 1123); use letters, digits and '-', with '.' between parts that begin and end with a "
        "letter or digit, at most 63 characters a part and 253 in all, the last of several parts no number"
    )


def address_error(address: object) -> str | None:
    """Why SSH cannot go to this address; None when it is an IP address or a host name by RFC 1123."""
    text = address if isinstance(address, str) else ""
    host = text.partition("%")[0]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host_name_error(address) is None:
            return None
        return "it is no address; give an IPv4 or IPv6 address, or a host name (RFC 1123)"
    zone = re.fullmatch(r"(%[A-Za-z0-9][A-Za-z0-9_.-]*)?", text[len(host) :], re.ASCII)
    return None if zone else "its zone is no name of a network interface; write it like fe80::1%eth0"


def check_machine_name(name: str) -> str:
    """Return ``name`` when a machine can have it, else raise :class:`InvalidName`."""
    error = machine_error(name)
    if error is not None:
        raise InvalidName(error)
    return name
