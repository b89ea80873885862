# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate with its chain and its key: whether a server can use them, and what clients that verify will say.

OpenSSL judges by a handshake with itself, in memory, in which the client trusts the chain.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import NamedTuple

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

_PARTIAL_CHAIN = getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)  # named from Python 3.10 on
_NOT_YET, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64  # X509_V_ERR_ of OpenSSL
_SHORT = "is too short: it takes RSA with 2048 bits or an elliptic curve with 256"
#: what OpenSSL calls it → in words
_REASONS = {
    **dict.fromkeys(
        ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"),
        "the key is not the certificate's; give the two that belong together",
    ),
    "EE_KEY_TOO_SMALL": f"the key {_SHORT}",
    "CA_KEY_TOO_SMALL": f"the key of a certificate between it and the root {_SHORT}",
    "CA_MD_TOO_WEAK": "a certificate is signed with a weak digest, such as SHA-1; have it signed with SHA-256",
    # that is all that OpenSSL says
    "PEM lib": "one of them is not in PEM, or the key has a passphrase; give it without one",
}


class Verdict(NamedTuple):
    """What clients that verify find wrong, "" for nothing."""

    out_of_date: str  # with every name
    refused: str  # anything else: the name, or what the certificate is for


def loaded(certificate: str, key: str) -> ssl.SSLContext:
    """The context of a server with these two files; ImageError says in words why they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # whose messages come in the middle of an answer
    try:
        # without one, OpenSSL would ask for it on a terminal
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ImageError(_in_words(error)) from error
    return context


def judged(context: ssl.SSLContext, certificate: str, name: str) -> Verdict:
    """What clients will say of a context of `loaded`; ``name``: the host that they ask for, "" when it is not known."""
    error = _handshake(context, certificate, "")
    code = getattr(error, "verify_code", 0)
    if code in (_NOT_YET, _EXPIRED):
        what = "has expired" if code == _EXPIRED else "is not valid yet"
        return Verdict(f"the certificate, or one of those between it and the root, {what}; give a valid one", "")
    error = error or (_handshake(context, certificate, name) if name else None)
    if error is None:
        return Verdict("", "")
    if getattr(error, "verify_code", 0) in (_OTHER_NAME, _OTHER_ADDRESS):
        return Verdict("", f"the certificate is not for {name}, by which clients reach the server")
    return Verdict("", f"clients refuse the certificate: {getattr(error, 'verify_message', '') or _in_words(error)}")


def _handshake(server: ssl.SSLContext, trusted: str, name: str) -> Exception | None:
    """Why a client that trusts these certificates, and asks for this name, gets no connection; None when it does."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= _PARTIAL_CHAIN
    client.check_hostname = bool(name)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(trusted)
        near = client.wrap_bio(back, there, server_hostname=name or None)
        far = server.wrap_bio(there, back, server_side=True)
        for side in (near, far) * 4:  # one that is through with it does nothing
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except (OSError, ValueError) as error:
        return error
    return None


def _in_words(error: Exception) -> str:
    reason = str(getattr(error, "reason", "") or getattr(error, "strerror", "") or error)
    known = [words for name, words in _REASONS.items() if name in reason]
    return known[0] if known else reason.replace("_", " ").lower() if reason.isupper() else reason
