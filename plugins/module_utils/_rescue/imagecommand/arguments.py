# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What every command is asked for: a machine, its bootstrap data and SSH keys, and its root device."""

from __future__ import annotations

import base64
import contextlib
import re
import struct
import zlib
from pathlib import Path

from ..._common.names import is_command_name
from ..._common.text import json_value
from .basics import MIB, Refused
from .incoming import MAGIC
from .root_device import Disk

# --- The SSH keys that opened the rescue, for the new system to accept as well.


KEY_FIELDS = {  # kinds of public keys, and what they are made of: a text means itself, a number means a length
    b"ssh-ed25519": (32,),
    b"ssh-rsa": (None, None),
    b"ecdsa-sha2-nistp256": (b"nistp256", 65),
    b"ecdsa-sha2-nistp384": (b"nistp384", 97),
    b"ecdsa-sha2-nistp521": (b"nistp521", 133),
    b"sk-ssh-ed25519@openssh.com": (32, None),
    b"sk-ecdsa-sha2-nistp256@openssh.com": (b"nistp256", 65, None),
}


def authorized_keys(path: Path) -> list[str]:
    """Return the plain public keys of an authorized_keys file, each one once, in order; none without such a file."""
    try:
        if not path.is_file():
            return []
        with path.open("rb") as stream:
            text = stream.read(MIB)
    except OSError as error:
        raise Refused(f"SSH keys of the rescue: {path}: {error.strerror}") from None
    found: dict[str, str] = {}
    for line in text.split(b"\n"):  # as sshd does; splitlines() would find keys inside of comments
        key = plain_key(line)
        if key:
            found.setdefault(key.split(" ")[1], key)
    return list(found.values())


def plain_key(line: bytes) -> str:
    """Return one line as `kind base64 [comment]`, or nothing: a key with options must not lose its restrictions."""
    shown = line.lstrip(b" \t").rstrip(b" \t\r")
    parts = re.fullmatch(rb"([!-~]+)[ \t]+([A-Za-z0-9+/]+={0,2})(?:[ \t]+(.*))?", shown, re.S)
    if not parts or not well_formed(parts.group(1), parts.group(2)):
        return ""
    comment = parts.group(3) or b""
    words = [parts.group(1), parts.group(2), comment if re.fullmatch(rb"[ -~]+", comment) else b""]
    return b" ".join(filter(None, words)).decode("ascii")


def well_formed(kind: bytes, text: bytes) -> bool:
    """Whether the base64 text holds exactly the fields of a key of this kind."""
    try:
        rest, fields = base64.b64decode(text, validate=True), []
        while rest:
            (length,) = struct.unpack_from(">I", rest)
            if length > len(rest) - 4:
                return False
            fields.append(rest[4 : 4 + length])
            rest = rest[4 + length :]
    except (ValueError, struct.error):
        return False
    wanted = KEY_FIELDS.get(kind)
    if wanted is None or len(fields) != 1 + len(wanted) or fields[0] != kind:
        return False
    return all(field and rule in (None, field, len(field)) for rule, field in zip(wanted, fields[1:]))


# --- Bootstrap data: its kind, recognised by its content.


class Bootstrap:
    """The bootstrap data, and the SSH keys that go with it."""

    def __init__(self, data: bytes, keys: list[str]) -> None:
        self.data, self.keys = data, keys
        self.kind = kind_of_bootstrap(data)


def kind_of_bootstrap(data: bytes) -> str:
    """The kind of bootstrap data, by its content: cloud-init, ignition or none."""
    text = data
    if data.startswith(MAGIC["gz"]):  # cloud-init takes compressed user data as well
        with contextlib.suppress(zlib.error):
            text = zlib.decompressobj(31).decompress(data, 4096)
    text = text.lstrip()
    if not text:
        return "none"
    heads = rb"#!|#cloud-|#include|#part-handler|##\s*template:\s*jinja|content-type\s*:|mime-version\s*:"
    if re.match(heads, text, re.I):
        return "cloud-init"
    with contextlib.suppress(ValueError, RecursionError):
        found = json_value(text)
        if isinstance(found, dict) and isinstance(found.get("ignition"), dict) and "version" in found["ignition"]:
            return "ignition"
    raise Refused(
        "bootstrap data: neither cloud-init (#cloud-config, #!, #include, MIME, jinja template) "
        'nor Ignition ({"ignition": {"version": …})'
    )


# --- What every command is asked for: a machine, its bootstrap data and its root device.


class Job:
    """The checked arguments of a command, the image URL aside."""

    def __init__(self, bootstrap_file: str, machine: str, devices: str, with_keys: bool) -> None:
        try:
            data = Path(bootstrap_file).read_bytes()
        except OSError as error:
            raise Refused(f"bootstrap data: {bootstrap_file}: {error.strerror}") from None
        keys = Path(bootstrap_file).with_name(".ssh") / "authorized_keys"
        self.bootstrap = Bootstrap(data, authorized_keys(keys) if with_keys else [])
        # No stricter than the controller: the disk may have been emptied for this name.
        if not is_command_name(machine):
            raise Refused(f"machine name: {machine!r} is not a host name")
        self.machine = machine
        names = devices.split()
        if len(names) != 1:
            raise Refused(f"root devices: {devices!r} are {len(names)} devices; an image needs exactly one")
        self.disk = Disk(names[0])
