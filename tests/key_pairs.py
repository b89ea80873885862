# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Key pairs as tests need them."""

import base64
import itertools
import struct
import subprocess
from pathlib import Path

_numbers = itertools.count(1)


def public_key(comment: str = "test") -> str:
    """A public key without a private half; another one at each call."""
    name = b"ssh-ed25519"
    blob = struct.pack(">I", len(name)) + name + struct.pack(">I", 32) + next(_numbers).to_bytes(32, "big")
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {comment}".rstrip()


def key_pair(path: Path, *kind: str, comment: str = "me@host", passphrase: str = "") -> str:
    """Make one; its private half is in the file, and the line of its public half is returned."""
    words = ["-q", "-t", *(kind or ["ed25519"]), "-N", passphrase, "-C", comment, "-f", str(path)]
    subprocess.run(["ssh-keygen", *words], check=True)
    return Path(f"{path}.pub").read_text().strip()
