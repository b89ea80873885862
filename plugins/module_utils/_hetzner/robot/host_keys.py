# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Are the host keys a rescue shows those that Robot tells of? (pure)"""

from __future__ import annotations

import base64
import hashlib
import hmac

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import key_blob

_PREFIX = "SHA256:"


def fingerprint(key):
    """SHA-256 of a public key (``type base64``), in base64 without padding and without a prefix, as Robot writes it."""
    return base64.b64encode(hashlib.sha256(key_blob(key)).digest()).decode("ascii").rstrip("=")


def told_by(rescue):
    """The fingerprints in an answer of ``…/rescue/last``; an empty list when it tells none."""
    told = []
    entries = rescue.get("host_key")
    for entry in entries if isinstance(entries, list) else []:
        key = entry.get("key") if isinstance(entry, dict) else None
        text = key.get("fingerprint") if isinstance(key, dict) else None
        if isinstance(text, str) and text and text.isascii():
            told.append((text[len(_PREFIX) :] if text.startswith(_PREFIX) else text).rstrip("="))
    return told


def proven(shown, told):
    """Those of the keys ``shown`` whose fingerprints were ``told``; every pair is compared, in constant time."""
    result = []
    for key in shown:
        matches = [hmac.compare_digest(fingerprint(key).encode(), one.encode()) for one in told]
        if any(matches):
            result.append(key)
    return sorted(result)
