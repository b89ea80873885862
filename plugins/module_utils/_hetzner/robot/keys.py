# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The SSH key that opens the rescue: found in Robot by its material, registered when Robot does not know it."""

from __future__ import annotations

import hashlib
import os

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import ApiError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.keys import material, public_half
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import key_blob


def choose_key(ssh_public_key, ssh_private_key):
    """The public key line (type, base64) to open the rescue with; raises Unfit for what cannot work."""
    if not ssh_public_key and not ssh_private_key:
        raise Unfit("ssh_private_key: missing; set it or ssh_public_key, or nobody can log in to the rescue")
    given = _text_of(ssh_public_key) if ssh_public_key else None
    if given is not None and key_blob(given) is None:
        raise Unfit(
            "ssh_public_key: neither a public key ('ssh-ed25519 AAAA…') nor a file that holds one; use the .pub file"
        )
    private = public_half(ssh_private_key) if ssh_private_key else None
    if given and private and material(given) != material(private):
        raise Unfit(
            "ssh_public_key: not the public half of '%s'; leave it out, or correct one of the two" % ssh_private_key
        )
    return " ".join(material(given or private))


def fingerprint(public_key):
    """The MD5 fingerprint by which Robot names a key: 16 bytes in hexadecimal, with colons."""
    # Robot's name for a key; nothing is trusted because of it.
    digest = hashlib.md5(key_blob(public_key)).hexdigest()
    return ":".join(digest[index : index + 2] for index in range(0, 32, 2))


def is_registered(public_key, registered):
    """Whether this key, by its material, is among the keys Robot lists."""
    return any(
        item.get("fingerprint") == fingerprint(public_key)
        and (
            item.get("data") is None
            or (isinstance(item["data"], str) and material(item["data"]) == material(public_key))
        )
        for item in registered
    )


def register(api, public_key, name, deadline):
    """Make Robot know the key; somebody else may do it at the same moment."""
    path = "/key/%s" % fingerprint(public_key)

    def look():
        try:
            return api.read(path, deadline)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    try:
        api.change("POST", "/key", deadline, look, data={"name": name, "data": public_key})
    except ApiError as error:
        if error.code != "KEY_ALREADY_EXISTS":
            raise
        api.read(path, deadline)


def _text_of(key):
    """The option's value, or the content of the file it names."""
    if key_blob(key) is not None:
        return key
    path = os.path.expanduser(key.strip())
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(16384).strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise Unfit(
            "ssh_public_key: %r is neither a public key ('ssh-ed25519 AAAA…') nor a file that can be read (%s)"
            % (key[:60], type(error).__name__)
        ) from error
