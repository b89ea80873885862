# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of every kind, good and bad, for servers that are to judge them."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CURVE = ec.SECP256R1()


@dataclass(frozen=True)
class Pair:
    """A certificate and its key; ``crt`` and ``pem`` are their texts."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

    @property
    def crt(self) -> str:
        """The certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def pem(self) -> str:
        """The key in PEM."""
        plain = serialization.NoEncryption()
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
        ).decode()  # fmt: skip


def pair(
    *names: str, issuer: Pair | None = None, begin: int = -1, end: int = 1, bits: int = 0, authority: bool = False,
    clients: bool = False,
) -> Pair:  # fmt: skip
    """Good from ``begin`` to ``end`` (days from now); with ``bits`` RSA; ``clients``: for clients, not for servers."""
    key = rsa.generate_private_key(65537, bits) if bits else ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {names} {authority}"[:60])])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    made = made.issuer_name(issuer.certificate.subject if issuer else subject)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now + begin * day).not_valid_after(now + end * day)
    made = made.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    if clients:
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    return Pair(made.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
