# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates of a small authority, and facts of a machine, for the tests of the join."""

from __future__ import annotations

import copy
import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A CA that signs what a test asks for."""

    def __init__(self, name: str = "lab") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._sign(self.name, self.key, 0, 3650, [(x509.BasicConstraints(True, None), True)])

    @property
    def pem(self) -> str:
        """The certificate of the CA."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def client(self, name: str, organization: str = "system:nodes", days: tuple[int, int] = (-1, 1)) -> str:
        """Certificate and key of a client in one PEM; ``days`` from now it begins and ends."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        return self._pair(x509.Name(subject), days, [])

    def server(self, *names: str, days: tuple[int, int] = (-1, 1)) -> str:
        """The same of a server with these names and addresses."""
        found = [x509.IPAddress(ipaddress.ip_address(one)) if one[0].isdigit() else x509.DNSName(one) for one in names]
        return self._pair(x509.Name([]), days, [(x509.SubjectAlternativeName(found), True)])

    def _pair(self, subject: x509.Name, days: tuple[int, int], extensions: list) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(subject, key, *days, extensions)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode() + private.decode()

    def _sign(self, subject: x509.Name, key, start: int, end: int, extensions: list) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=start, minutes=-5))
            .not_valid_after(now + datetime.timedelta(days=end))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())


_NODE = {
    "hostname": "Node-1",
    "machine_id": "0123456789abcdef0123456789abcdef",
    "cpus": 4,
    "memory_bytes": 8 << 30,
    "disk_free": {"/": 40 << 30, "/var": 20 << 30},
    "read_only_usr": False,
    "swaps": [],
    "resolv": {"/etc/resolv.conf": ["127.0.0.53"], "/run/systemd/resolve/resolv.conf": ["192.0.2.53"]},
    "network": {
        "addresses": [
            {"address": "192.0.2.7", "family": 4, "interface": "eth0", "prefix": 24},
            {"address": "10.0.0.7", "family": 4, "interface": "eth1", "prefix": 24},
            {"address": "2001:db8::7", "family": 6, "interface": "eth0", "prefix": 64},
            {"address": "fe80::7", "family": 6, "interface": "eth0", "prefix": 64},
        ],
        "default": {"4": {"address": "192.0.2.7", "interface": "eth0"}, "6": {"address": None, "interface": "eth0"}},
    },
    "binaries": {"kubelet": None, "/usr/local/bin/kubelet": {"path": "/usr/local/bin/kubelet", "version": "1.36.4"}},
    "base": {
        "bin_dir": "/usr/local/bin",
        "runtime": {"name": "containerd", "socket": "/run/containerd/containerd.sock"},
    },
}


def machine(version: str = "1.36.4", **changes) -> dict:
    """What node_info says of a machine with a kubelet of this version."""
    node = copy.deepcopy(_NODE)
    node["binaries"]["/usr/local/bin/kubelet"]["version"] = version
    return {**node, **changes}


def seen(**changes) -> dict:
    """What node_join_check says of a machine that has not joined."""
    return {
        "ca_cert": "PEM\n",
        "ca_hashes": ["sha256:" + "0" * 64],
        "client": {"state": "none", "not_after": None, "node": "", "server": None},
        "need_bootstrap": True,
        "need_registration": False,
        "record": None,
        "present": [],
        **changes,
    }
