# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Public keys of OpenSSH, and the known_hosts files that modules and controller share (pure).

Each machine has a file for each phase: ``MACHINE.rescue`` with the host keys of its rescue, ``MACHINE.os`` with those
of its system. They have an alias as their host name, so no address or jump host matters. The first line of a file whose
system was proven says for which boot, and in which run.
"""

from __future__ import annotations

import base64
import hashlib
import re

from .text import base64_bytes

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
