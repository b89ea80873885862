# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether SSH will be able to use a private key, found out before anything is created."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common.ssh_keys import key_blob
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line

_MAGIC = b"openssh-key-v1\0"
#: Seconds after which a program of OpenSSH that should answer at once is taken for hanging.
_HANGS = 120


class KeyNotUsable(ValueError):
    """SSH could not use the key; the text says why and what to do."""


def check_private_key(path: str) -> None:
    """Raise :class:`KeyNotUsable` unless the key opens without a question, or an agent holds it."""
    if not os.path.isfile(path):
        raise KeyNotUsable("there is no such file; give the private half of a key of the project")
    if not os.access(path, os.R_OK):
        raise KeyNotUsable("it is not readable for the user that runs Ansible")
    public = key_blob(Path(path).read_text(encoding="ascii", errors="replace"))
    if public is not None:
        if not _agent_holds(base64.b64encode(public).decode()):
            raise KeyNotUsable("it is a public key whose private half no agent holds; ssh-add that, or name its file")
        return
    # An empty passphrase is tried; ssh-keygen does not ask for one.
    answer = _run("ssh-keygen", "-y", "-P", "", "-f", path)
    if answer.returncode == 0:
        return
    error = answer.stderr.decode("utf-8", "replace")
    if "UNPROTECTED PRIVATE KEY FILE" in error or "bad permissions" in error:
        raise KeyNotUsable(f"others may read it, so ssh refuses it; chmod 600 {path}")
    if "passphrase" not in error:
        raise KeyNotUsable(f"it is not a private key ({one_line(error.splitlines()[-1] if error else '', 120)})")
    if not _agent_holds(_public_blob(Path(path))):
        raise KeyNotUsable("it is protected by a passphrase and no agent holds it; ssh-add it, or use another key")


def _public_blob(path: Path) -> str | None:
    """The public key as base64: a key in OpenSSH's format has it unencrypted, else it is in the .pub file."""
    lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    try:
        data = base64.b64decode("".join(line for line in lines if not line.startswith("-----")))
    except ValueError:
        data = b""
    if data.startswith(_MAGIC):
        # cipher, key derivation and its options are strings; then the number of keys, then the public key as a string
        offset = len(_MAGIC)
        for _field in range(3):
            offset += 4 + int.from_bytes(data[offset : offset + 4], "big")
        offset += 4
        length = int.from_bytes(data[offset : offset + 4], "big")
        return base64.b64encode(data[offset + 4 : offset + 4 + length]).decode()
    try:
        return Path(f"{path}.pub").read_text(encoding="ascii", errors="replace").split()[1]
    except (OSError, IndexError):
        return None


def _agent_holds(blob: str | None) -> bool:
    if blob is None or not os.environ.get("SSH_AUTH_SOCK"):
        return False
    keys = _run("ssh-add", "-L").stdout.decode("ascii", "replace")
    return any(blob in line.split()[1:2] for line in keys.splitlines())


def _run(*command: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_HANGS, check=False)
    except subprocess.TimeoutExpired as exc:
        raise KeyNotUsable(
            f"{command[0]} did not end within {_HANGS} s; look at what the key needs to be read"
        ) from exc
    except FileNotFoundError as exc:
        raise KeyNotUsable(f"{command[0]} is not installed on the controller; install the OpenSSH client") from exc
