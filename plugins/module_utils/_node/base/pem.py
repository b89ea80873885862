# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Certificates in PEM text."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*\n(.*?)-----END \1-----", re.DOTALL)


def certificates(text):
    """Each certificate of the text as PEM of its own, in order; empty when any block is broken or is something else.

    A private key that came along by mistake is so refused instead of being written into a world-readable folder.
    """
    result = []
    for kind, body in _BLOCK.findall(text.replace("\r\n", "\n")):
        try:
            der = base64.b64decode("".join(body.split()), validate=True)
        except (binascii.Error, ValueError):
            return []
        # every certificate is a DER SEQUENCE
        if kind != "CERTIFICATE" or der[:1] != b"\x30":
            return []
        result.append("-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n" % _wrapped(der))
    return result


def name_of(certificate):
    """A short, stable name for the file of one certificate."""
    return hashlib.sha256(certificate.encode("ascii")).hexdigest()[:12]


def _wrapped(der):
    text = base64.b64encode(der).decode("ascii")
    return "".join(text[start : start + 64] + "\n" for start in range(0, len(text), 64))
