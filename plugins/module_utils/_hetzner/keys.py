# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""SSH keys: do the private key of the controller and the keys registered with the project belong together?"""

from __future__ import annotations

import os

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit, pick
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.process import run_limited


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
