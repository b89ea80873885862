# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The one rule for the names of machines (pure).

A machine's name is its host name, the name of its server, the value of a label, the name of files on the controller and
an argument of programs. Hetzner Cloud wants a host name by RFC 1123, a label holds 63 characters, a Node's name is in
lower case; Robot takes any text.
"""

from __future__ import annotations

import re

#: The longest value of a label, of Hetzner Cloud and of Kubernetes.
LONGEST = 63
#: What is no machine's own: the name every rescue has, and every machine's name for itself.
RESERVED = ("rescue", "localhost")

_PART = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(r"%s(?:\.%s)*" % (_PART, _PART), re.ASCII)
_ADDRESS = re.compile(r"[0-9]+(?:\.[0-9]+){3}", re.ASCII)


class InvalidName(ValueError):
    """The name is refused; the text says why and what would be taken."""


def machine_error(name):
    """Why a machine cannot have this name, and what would do; None when it can."""
    if not isinstance(name, str) or not name:
        return "it is no name; give a host name such as node-1"
    if _NAME.fullmatch(name) is None:
        if _NAME.fullmatch(name.lower()) is not None:
            return "it has capital letters, which some see as another name; use %s" % name.lower()[:LONGEST]
        return (
            "it is no host name (RFC 1123); use lower-case letters, digits and '-', with '.' between parts that begin "
            "and end with a letter or digit, at most %d characters" % LONGEST
        )
    if len(name) > LONGEST:
        return "it has %d characters, a label of a server holds %d; use a shorter one" % (len(name), LONGEST)
    if _ADDRESS.fullmatch(name):
        return "it is an address; give the machine a name and put the address into ansible_host"
    if name.partition(".")[0] in RESERVED:
        return (
            "%s is what every rescue or every machine calls itself, so the name would prove nothing; use another name"
            % name.partition(".")[0]
        )
    return None


def check_machine_name(name):
    """Return ``name`` when a machine can have it, else raise :class:`InvalidName`."""
    error = machine_error(name)
    if error is not None:
        raise InvalidName(error)
    return name
