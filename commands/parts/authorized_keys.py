# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH keys that opened the rescue, for the new system to accept as well."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path

from commands.parts.errors import Refused
from commands.parts.sizes import MIB

KEY_FIELDS = {  # kinds of public keys, and what they are made of: a name stands for itself, a number for a length
    b"ssh-ed25519": (32,),
    b"ssh-rsa": (None, None),
    b"ecdsa-sha2-nistp256": (b"nistp256", 65),
    b"ecdsa-sha2-nistp384": (b"nistp384", 97),
    b"ecdsa-sha2-nistp521": (b"nistp521", 133),
    b"sk-ssh-ed25519@openssh.com": (32, None),
    b"sk-ecdsa-sha2-nistp256@openssh.com": (b"nistp256", 65, None),
}


def authorized_keys(path: Path) -> list:
    """Return the plain public keys of an authorized_keys file, each one once, in order; none without such a file."""
    try:
        if not path.is_file():
            return []
        with path.open("rb") as stream:
            text = stream.read(MIB)
    except OSError as error:
        raise Refused("SSH keys of the rescue: %s: %s" % (path, error.strerror)) from None
    found: dict = {}
    for line in text.split(b"\n"):  # as sshd does; splitlines() would find keys inside of comments
        key = plain_key(line)
        if key:
            found.setdefault(key.split(" ")[1], key)
    return list(found.values())


def plain_key(line: bytes) -> str:
    """Return one line as `kind base64 [comment]`, or nothing: a key with options must not lose its restrictions."""
    parts = re.fullmatch(rb"[ \t]*([!-~]+)[ \t]+([A-Za-z0-9+/]+={0,2})(?:[ \t]+(.*?))?[ \t\r]*", line, re.S)
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
