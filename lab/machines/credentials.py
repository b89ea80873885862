# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rescue is told at boot, as systemd credentials: who may log in, and which host keys it shows."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path

from .base import Rescue
from .host import LabError

_MAGIC = b"openssh-key-v1\0"
_TYPES = {b"ssh-ed25519": "ed25519", b"ssh-rsa": "rsa"}


def of_rescue(rescue: Rescue) -> dict[str, str]:
    """Name → content of the credentials of one boot."""
    found = {"ssh.authorized_keys.root": "".join(f"{key.strip()}\n" for key in rescue.authorized_keys)}
    if rescue.password is not None:
        found["lab.root_password"] = rescue.password
    for key in rescue.host_keys:
        found[f"lab.ssh_host_key.{key_type(key)}"] = key if key.endswith("\n") else key + "\n"
    return {name: content for name, content in found.items() if content}


def write(folder: Path, credentials: dict[str, str]) -> dict[str, Path]:
    """Leave credentials in a folder that only we can read; what an earlier boot had is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    files = {}
    for name, content in credentials.items():
        files[name] = folder / name
        fd = os.open(files[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(content)
    return files


def key_type(private: str) -> str:
    """ed25519, ecdsa or rsa: the type of an OpenSSH private key, from its public part, which is not encrypted."""
    lines = [line.strip() for line in private.strip().splitlines()]
    if len(lines) < 3 or "OPENSSH PRIVATE KEY" not in lines[0]:
        raise LabError("a host key of the rescue is not an OpenSSH private key; give its text with both marker lines")
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except ValueError as error:
        raise LabError("a host key of the rescue is damaged: its text is not base64") from error
    rest = blob.removeprefix(_MAGIC)
    for _field in ("cipher", "derivation of its key", "options of that"):
        _value, rest = _string(rest)
    public, _rest = _string(rest[4:])
    name, _rest = _string(public)
    kind = _TYPES.get(name) or ("ecdsa" if name.startswith(b"ecdsa-sha2-") else "")
    if not blob.startswith(_MAGIC) or not kind:
        raise LabError(f"a host key of the rescue is of type {name[:40]!r}; give ed25519, ecdsa or rsa")
    return kind


def _string(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:4])
    return data[4 : 4 + length], data[4 + length :]
