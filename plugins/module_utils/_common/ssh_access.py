# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How machines are reached: an installed system where that differs from its rescue, and by which way ssh goes there."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from .names import address_error
from .text import base64_bytes, whole_number

_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


#: Settings of ssh by which it takes another way than a plain connection would.
_OTHER_WAYS = ("proxyjump", "proxycommand", "bindaddress", "bindinterface")


def direct_address(settings: str) -> tuple[str, int] | None:
    """Where a plain connection leads to a machine; None behind a jump host, where only ssh finds the way.

    ``settings``: what ``ssh -G`` printed.
    """
    found = dict(line.split(" ", 1) for line in settings.splitlines() if " " in line)
    port = whole_number(found.get("port"))
    if not port or "hostname" not in found or any(found.get(name, "none") != "none" for name in _OTHER_WAYS):
        return None
    return found["hostname"], port


def access_findings(one: Mapping[str, Any]) -> list[str]:
    """What is wrong with the fields of a machine by which it is reached; None: not set.

    They are ``address``, ``os_user``, ``os_port``, ``os_private_key`` and ``ssh_args``.
    """
    user, port, key = (one.get(field) for field in ("os_user", "os_port", "os_private_key"))
    address, found = one.get("address"), []
    if address and address_error(address) is not None:
        found.append(f"address: {str(address)[:100]!r}: {address_error(address)}")
    if user is not None and not (isinstance(user, str) and _USER.match(user)):
        found.append(f"os_user: {user!r} is no user name; use letters, digits, '-', '_' and '.'")
    number = whole_number(str(port)) if port is not None and not isinstance(port, bool) else None
    if port is not None and not 0 < (number or 0) < 65536:
        found.append(f"os_port: {port!r} is no port; use a number from 1 to 65535")
    if key is not None and not (isinstance(key, str) and os.path.isfile(os.path.expanduser(key))):
        found.append(f"os_private_key: there is no file {key!r} on the controller")
    try:
        shlex.split(str(one.get("ssh_args") or ""))
    except ValueError as error:
        found.append(f"ssh_args: {str(one['ssh_args'])[:200]!r} cannot be split into words ({error})")
    return found


#: Host keys that are looked at; a system has one of each kind.
MOST_KEYS = 16

_KEY_TYPE = re.compile(r"[a-z0-9@.-]{1,64}\Z")
#: How the first line of a file begins whose system was proven.
PROVEN = "# kubenode boot="
_HEADER = re.compile(PROVEN + r"(?P<boot>[0-9a-f-]{36}) run=(?P<run>\S+)\n")


class InvalidHostKey(ValueError):
    """Not a public host key; the text says why."""


def parse_host_key(line: str) -> str:
    """``type base64`` of a public key line (``ssh-ed25519 AAAA… comment``); raises `InvalidHostKey`."""
    fields = line.split()
    if len(fields) < 2 or not _KEY_TYPE.match(fields[0]):
        raise InvalidHostKey("use the line of the .pub file: 'ssh-ed25519 AAAA…'")
    blob = base64_bytes(fields[1])
    if blob is None:
        raise InvalidHostKey("its second word is not base64; use the line of the .pub file")
    name = fields[0].encode()
    if blob[:4] != len(name).to_bytes(4, "big") or blob[4 : 4 + len(name)] != name:
        raise InvalidHostKey(f"its base64 is not a key of type {fields[0]}; use the line of the .pub file")
    return " ".join(fields[:2])


def key_blob(line: str) -> bytes | None:
    """The bytes of a public key line; None when it is none."""
    try:
        return base64_bytes(parse_host_key(line).split()[1])
    except InvalidHostKey:
        return None


def sha256_fingerprint(line: str) -> str:
    """SHA-256 of a public key line, in base64 without padding and without the prefix ``SHA256:``."""
    return base64.b64encode(hashlib.sha256(key_blob(line) or b"").digest()).decode("ascii").rstrip("=")


def key_lines(text: str) -> list[str]:
    """``type base64`` of each line of a known_hosts file or of ssh-keyscan; anything else is left out."""
    keys = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and not line.startswith(("#", "@")) and key_blob(" ".join(words[1:3])) is not None:
            keys.append(" ".join(words[1:3]))
    return keys[:MOST_KEYS]


def known_hosts_name(machine: str, phase: str) -> str:
    """The name of the known_hosts file of a machine in one phase."""
    return f"{machine}.{phase}"


def alias(machine: str, phase: str) -> str:
    """The name under which ssh looks up the keys of a machine in one phase."""
    return known_hosts_name(machine, phase).lower()


def known_hosts(name: str, keys: list[str]) -> str:
    """The text of a known_hosts file with these keys (``type base64``) under one name."""
    return "".join(f"{name} {key}\n" for key in keys)


def header(boot_id: str, run: str) -> str:
    """The first line of a file whose system was proven."""
    return f"{PROVEN}{boot_id} run={run}\n"


def without_header(text: str) -> str:
    """The text of a file without that line."""
    return _HEADER.sub("", text)


def proven_in(text: str) -> tuple[str, str]:
    """(boot id, run) for which the system of a file was proven; both empty when it was not."""
    match = _HEADER.match(text)
    return (match.group("boot"), match.group("run")) if match else ("", "")


def quoted(path: str) -> str:
    """A path as the value of an ssh option, where blanks separate and percent signs expand."""
    return '"{}"'.format(path.replace("%", "%%"))
