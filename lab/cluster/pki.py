# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and certificates of one control plane, valid for a week: a lab does not live longer."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.state import write_secret

_DAYS = 7
_EARLIER = datetime.timedelta(hours=2)  # clocks of machines may be behind the host's
_SERVICE = "10.96.0.1"  # the first address of the services, where pods find the API
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Pki:
    """The files of a control plane below ``folder``: NAME.crt and NAME.key (0600)."""

    def __init__(self, folder: Path, host: str) -> None:
        """Make all of them; ``host`` is the IP address at which the API server will answer."""
        self._folder = folder
        # An RSA key, as real clusters have it: pins and tools meet what they will meet elsewhere.
        self._ca_key: Key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._ca = self._authority()
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(self._ca.public_bytes(Encoding.PEM))
        self._write_key("ca", self._ca_key)
        addresses = [ipaddress.ip_address(text) for text in dict.fromkeys((host, "127.0.0.1", _SERVICE))]
        names = [*(x509.IPAddress(address) for address in addresses), *(x509.DNSName(name) for name in _NAMES)]
        self._issue("apiserver", "kube-apiserver", None, x509.SubjectAlternativeName(names))
        self._issue("admin", "kubernetes-admin", "system:masters")
        self._issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
        accounts = ec.generate_private_key(ec.SECP256R1())
        self._write_key("sa", accounts)
        public = accounts.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "sa.pub").write_bytes(public)

    def kubeconfig(self, name: str, server: str) -> Path:
        """Write a configuration (0600) with which clients are the holder of the certificate ``name``."""
        user = {
            "client-certificate-data": self._encoded(f"{name}.crt"),
            "client-key-data": self._encoded(f"{name}.key"),
        }
        config = kubeconfig(server, self.ca_file.read_bytes(), user)
        file = self._folder / f"{name}.kubeconfig"
        write_secret(file, json.dumps(config, indent=1) + "\n")  # JSON is YAML
        return file

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self._folder / name).read_bytes()).decode()

    def _authority(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=True, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = _builder(name, name, self._ca_key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._ca_key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        return builder.add_extension(usage, critical=True).sign(self._ca_key, hashes.SHA256())

    def _issue(self, file: str, name: str, group: str | None, names: x509.SubjectAlternativeName | None = None) -> None:
        """A certificate for a server when it has names, else for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._ca.subject, key)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca_key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._ca_key, hashes.SHA256())
        (self._folder / f"{file}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        self._write_key(file, key)

    def _write_key(self, name: str, key: Key) -> None:
        text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
        write_secret(self._folder / f"{name}.key", text)


def kubeconfig(server: str, ca_pem: bytes, user: dict[str, str]) -> dict[str, object]:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }


def public_key_hash(ca_pem: bytes) -> str:
    """The pin of a CA as kubeadm writes it: sha256:HEX of its SubjectPublicKeyInfo."""
    key = x509.load_pem_x509_certificate(ca_pem).public_key()
    return f"sha256:{hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()}"


def _builder(subject: x509.Name, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(now - _EARLIER).not_valid_after(now + datetime.timedelta(days=_DAYS))
