# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The SSH key that opens a rescue: its private half here, its public half registered with the provider."""

from __future__ import annotations

import hashlib
import os

from .._common.ssh_keys import key_blob
from .catalog import Unfit, pick
from .errors import ApiError
from .ssh import run_limited


def material(public_key):
    """Type and base64 body of a public key line, without its comment; None when it is no such line."""
    parts = (public_key or "").split()
    return tuple(parts[:2]) if len(parts) >= 2 else None


def public_half(path):
    """The public key line of the private key file ``path``; falls back to ``path``.pub for a key with a passphrase."""
    if not os.path.isfile(path):
        raise Unfit("ssh_private_key: '%s' is no file on the controller; name the file of the private key" % path)
    if not os.access(path, os.R_OK):
        raise Unfit("ssh_private_key: '%s' cannot be read; check its owner and mode" % path)
    returncode, output, errors = run_limited(["ssh-keygen", "-y", "-P", "", "-f", path], 20)
    if returncode == 0:
        return output.strip()
    try:
        with open(path + ".pub", encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        reason = errors.strip().splitlines()[-1:] or ["no reason given"]
        raise Unfit(
            "ssh_private_key: the public half of '%s' cannot be had (%s) and there is no readable '%s.pub' beside it"
            % (path, reason[0], path)
        ) from None


def known_key(key):
    """What a result carries of a registered key."""
    return {name: key.get(name) for name in ("id", "name", "public_key")}


def resolve_keys(field, wanted, registered, private_key_public=None, private_key_path=None):
    """The registered keys named by ``wanted``; the private key must open at least one of them."""
    if not wanted:
        raise Unfit("%s: empty; name at least one SSH key of the project, or nobody can log in to the rescue" % field)
    keys = [pick(field, str(name), registered) for name in wanted]
    if private_key_public is not None and material(private_key_public) not in [
        material(key.get("public_key")) for key in keys
    ]:
        others = [key["name"] for key in registered if material(key.get("public_key")) == material(private_key_public)]
        raise Unfit(
            "%s: the private key '%s' opens none of %s; %s"
            % (
                field,
                private_key_path,
                ", ".join("'%s'" % key["name"] for key in keys),
                "name '%s', which is its public half" % others[0]
                if others
                else "register its public half with the project and name it here",
            )
        )
    return keys


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


def md5_fingerprint(public_key):
    """The MD5 fingerprint by which Robot names a key: 16 bytes in hexadecimal, with colons."""
    # Robot's name for a key; nothing is trusted because of it.
    digest = hashlib.md5(key_blob(public_key)).hexdigest()
    return ":".join(digest[index : index + 2] for index in range(0, 32, 2))


def is_registered(public_key, registered):
    """Whether this key, by its material, is among the keys Robot lists."""
    return any(
        item.get("fingerprint") == md5_fingerprint(public_key)
        and (
            item.get("data") is None
            or (isinstance(item["data"], str) and material(item["data"]) == material(public_key))
        )
        for item in registered
    )


def register(api, public_key, name, deadline):
    """Make Robot know the key; somebody else may do it at the same moment."""
    path = "/key/%s" % md5_fingerprint(public_key)

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
