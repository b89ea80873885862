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

from .names import address_error, is_command_name
from .text import base64_bytes, one_line, whole_number

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
_BOOT = r"[0-9a-f-]{36}"
_HEADER = re.compile(PROVEN + r"(?P<boot>" + _BOOT + r") run=(?P<run>\S+)\n")


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


#: What a run hands on of a machine that it has proven: where it is, and which host keys it showed in which boot.
HANDED_ON = ("address", "host_keys", "boot_id")


def handed_on_findings(machines: object) -> list[str]:
    """What is wrong with machines that another run has proven, by their names."""
    if not isinstance(machines, Mapping):
        return ["give a dictionary with the names of machines"]
    return [
        f"{one_line(repr(name), 100)}: {text}"
        for name, one in machines.items()
        for text in _handed_on_findings(name, one)
    ]


def _handed_on_findings(name: object, one: object) -> list[str]:
    if not isinstance(name, str) or not is_command_name(name):
        return ["no machine can have this name"]
    if not isinstance(one, Mapping) or not one or not set(one) <= set(HANDED_ON):
        return [f"give a dictionary of {', '.join(HANDED_ON)}"]
    found = []
    address, keys, boot = (one.get(field) for field in HANDED_ON)
    if address is not None and address_error(address) is not None:
        found.append(f"address: {one_line(repr(address), 100)}: {address_error(address)}")
    if (keys is None) != (boot is None):
        found.append("host_keys and boot_id go together; give both or none")
    elif keys is not None:
        if not isinstance(keys, list) or not 0 < len(keys) <= MOST_KEYS:
            found.append(f"host_keys: give a list of 1 to {MOST_KEYS} public keys")
        else:
            found += [text for text in map(_host_key_finding, keys) if text]
        if not isinstance(boot, str) or not re.fullmatch(_BOOT, boot, re.ASCII):
            found.append(f"boot_id: {one_line(repr(boot), 60)} is no boot id")
    return found


def _host_key_finding(line: object) -> str:
    try:
        parse_host_key(line if isinstance(line, str) else "")
    except InvalidHostKey as exc:
        return f"host_keys: {one_line(repr(line), 60)}: {exc}"
    return ""


def quoted(path: str) -> str:
    """A path as the value of an ssh option, where blanks separate and percent signs expand."""
    return '"{}"'.format(path.replace("%", "%%"))
