# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet does to join, by hand: a key, a request, a certificate."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lab.cluster.kube_client import KubeClient
from lab.cluster.running_cluster import RunningCluster
from tests.waiting import until

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Joining:
    """One node-to-be with a bootstrap token."""

    def __init__(self, cluster: RunningCluster, name: str, token: str) -> None:
        self.name = name
        self._cluster = cluster
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._api = KubeClient(cluster.endpoint, cluster.ca_file, token=token)
        self._path = ""

    def ask(self) -> None:
        """Send the request that a kubelet sends."""
        names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{self.name}")]
        subject = x509.Name([x509.NameAttribute(*pair) for pair in names])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(self._key, hashes.SHA256())
        spec = {
            "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        }
        made = self._api.call("POST", REQUESTS, {"metadata": {"generateName": "node-csr-"}, "spec": spec})
        self._path = f"{REQUESTS}/{made['metadata']['name']}"

    def status(self) -> dict[str, Any]:
        """The request's status."""
        return self._api.get(self._path).get("status", {})

    def certificate(self) -> x509.Certificate:
        """The signed certificate, as soon as it is there."""
        return x509.load_pem_x509_certificate(self._pem())

    def as_node(self, folder: Path) -> KubeClient:
        """A client that is the node."""
        pair = folder / "node.crt", folder / "node.key"
        pair[0].write_bytes(self._pem())
        pair[1].write_bytes(self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return KubeClient(self._cluster.endpoint, self._cluster.ca_file, pair)

    def _pem(self) -> bytes:
        found = until(lambda: self.status().get("certificate"), f"a certificate for {self.name}", show=self.status)
        return base64.b64decode(found)
