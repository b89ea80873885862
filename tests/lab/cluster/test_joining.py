# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane does what joining depends on: tokens, requests, node restriction, cluster-info."""

import base64
import datetime
import hashlib
import hmac
import json
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

import kubernetes
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lab.cluster import KUBERNETES
from lab.cluster.kube_api import NODE_GROUP, KubeClient, KubeError, KubeUnreachable
from lab.cluster.running_cluster import RunningCluster
from tests.waiting import until

pytestmark = pytest.mark.cluster

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Joining:
    """One node-to-be with a bootstrap token."""

    def __init__(self, cluster: RunningCluster, name: str, token: str) -> None:
        self.name = name
        self._cluster = cluster
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._api = KubeClient(cluster.endpoint, cluster.ca_file, token=token)
        self._path = ""

    def ask(self) -> Self:
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
        return self

    def status(self) -> dict[str, Any]:
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


def test_a_token_gets_a_certificate_and_the_certificate_a_node(cluster: RunningCluster, tmp_path: Path) -> None:
    joining = Joining(cluster, "worker-1", cluster.token()).ask()
    node = joining.as_node(tmp_path)
    node.call("POST", "/api/v1/nodes", {"metadata": {"name": "worker-1", "labels": {"example.com/rack": "7"}}})
    assert cluster.nodes()["worker-1"]["metadata"]["labels"] == {"example.com/rack": "7"}
    assert "worker-1" in cluster.kubectl("get", "nodes")
    kubernetes.config.load_kube_config(str(cluster.kubeconfig))
    assert [item.metadata.name for item in kubernetes.client.CoreV1Api().list_node().items] == ["worker-1"]


def test_a_node_may_not_label_itself_as_it_likes_nor_touch_others(cluster: RunningCluster, tmp_path: Path) -> None:
    joining = Joining(cluster, "worker-2", cluster.token()).ask()
    node = joining.as_node(tmp_path)
    foreign = {"metadata": {"name": "worker-2", "labels": {"node-restriction.kubernetes.io/zone": "a"}}}
    with pytest.raises(KubeError, match="is not allowed to set the following labels") as refused:
        node.call("POST", "/api/v1/nodes", foreign)
    assert refused.value.status == 403
    with pytest.raises(KubeError, match="not allowed to"):
        node.call("POST", "/api/v1/nodes", {"metadata": {"name": "worker-3"}})
    assert not {"worker-2", "worker-3"} & set(cluster.nodes())


def test_without_an_approver_a_request_waits_until_there_is_one(cluster: RunningCluster) -> None:
    cluster.approve(False)
    joining = Joining(cluster, "worker-4", cluster.token()).ask()
    time.sleep(1)  # an approver answers within milliseconds; on a busy host this test sees less, but never fails
    assert joining.status() == {}
    cluster.approve(True)
    assert "worker-4" in joining.certificate().subject.rfc4514_string()
    assert [condition["type"] for condition in joining.status()["conditions"]] == ["Approved"]


def test_without_the_right_to_ask_a_token_is_let_in_but_refused(cluster: RunningCluster) -> None:
    outsider = Joining(cluster, "worker-5", cluster.token(groups=()))
    with pytest.raises(KubeError, match=r"certificatesigningrequests.*is forbidden") as refused:
        outsider.ask()
    assert refused.value.status == 403
    cluster.bootstrap(False)
    joining = Joining(cluster, "worker-5", cluster.token(groups=(NODE_GROUP,)))
    with pytest.raises(KubeError, match="forbidden"):
        joining.ask()
    cluster.bootstrap(True)
    joining.ask()
    assert joining.certificate()


def test_tokens_that_are_over_or_unknown_are_refused(cluster: RunningCluster) -> None:
    used = cluster.token()
    Joining(cluster, "worker-6", used).ask()
    cluster.expire(used)
    for token in (used, cluster.token(ttl=-60), "abcdef.0123456789abcdef"):
        with pytest.raises(KubeError) as refused:
            Joining(cluster, "worker-6", token).ask()
        assert refused.value.status == 401


def test_certificates_are_as_short_lived_as_wished(cluster: RunningCluster) -> None:
    cluster.sign_for(3600)
    joining = Joining(cluster, "worker-7", cluster.token()).ask()
    left = joining.certificate().not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert left <= datetime.timedelta(hours=1)
    assert left > datetime.timedelta(minutes=30)


def test_anybody_can_read_how_to_reach_the_cluster_and_a_token_proves_it(cluster: RunningCluster) -> None:
    token = cluster.token()
    anybody = KubeClient(cluster.endpoint, cluster.ca_file)
    assert anybody.get("/version")["gitVersion"] == f"v{KUBERNETES}"
    info = anybody.get("/api/v1/namespaces/kube-public/configmaps/cluster-info")["data"]
    text = info["kubeconfig"]
    digest = yaml.safe_load(text)["clusters"][0]["cluster"]
    assert digest["server"] == cluster.endpoint
    assert base64.b64decode(digest["certificate-authority-data"]).decode() == cluster.ca_pem
    header, between, signature = info[f"jws-kubeconfig-{token[:6]}"].split(".")
    assert between == ""
    assert json.loads(_decoded(header)) == {"alg": "HS256", "kid": token[:6]}
    payload = base64.urlsafe_b64encode(text.encode()).rstrip(b"=")
    proof = hmac.new(token[7:].encode(), header.encode() + b"." + payload, hashlib.sha256).digest()
    assert hmac.compare_digest(proof, _decoded(signature))
    with pytest.raises(KubeError) as refused:
        anybody.get("/api/v1/namespaces/kube-system/secrets")
    assert refused.value.status == 403


def test_the_cluster_holds_what_kubeadm_makes_and_a_token_reads_it(cluster: RunningCluster) -> None:
    api = KubeClient(cluster.endpoint, cluster.ca_file, token=cluster.token())
    maps = "/api/v1/namespaces/kube-system/configmaps"
    about = yaml.safe_load(api.get(f"{maps}/kubeadm-config")["data"]["ClusterConfiguration"])
    assert about["kubernetesVersion"] == f"v{KUBERNETES}"
    assert f"https://{about['controlPlaneEndpoint']}" == cluster.endpoint
    kubelet = yaml.safe_load(api.get(f"{maps}/kubelet-config")["data"]["kubelet"])
    assert (kubelet["kind"], kubelet["cgroupDriver"]) == ("KubeletConfiguration", "systemd")
    assert kubelet["authentication"]["x509"]["clientCAFile"] == "/etc/kubernetes/pki/ca.crt", "a place on nodes"


def test_a_token_signs_only_when_it_may(cluster: RunningCluster) -> None:
    token = cluster.token(signing=False)
    cluster.token()  # signed for when it is there, so the other one would have been, too
    info = cluster.api.get("/api/v1/namespaces/kube-public/configmaps/cluster-info")["data"]
    assert f"jws-kubeconfig-{token[:6]}" not in info


def test_the_server_goes_away_and_comes_back_with_what_it_knew(cluster: RunningCluster) -> None:
    cluster.api.call("POST", "/api/v1/nodes", {"metadata": {"name": "lasting"}})
    cluster.stop()
    with pytest.raises(KubeUnreachable):
        cluster.api.get("/version")
    cluster.start()
    assert "lasting" in cluster.nodes()
    joining = Joining(cluster, "worker-8", cluster.token()).ask()
    assert joining.certificate()


def test_pods_can_be_made_and_only_the_owner_reads_the_keys(cluster: RunningCluster) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one"},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "one", "image": "registry.k8s.io/pause:3.10.2"}]},
    }
    assert cluster.kubectl("create", "-f", "-", text=json.dumps(pod)) == "pod/one created\n"
    assert cluster.folder.stat().st_mode & 0o777 == 0o700
    private = [*cluster.folder.glob("*.key"), cluster.kubeconfig]
    assert len(private) == 6
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_strict_clients_trust_its_certificates(cluster: RunningCluster) -> None:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    with urllib.request.urlopen(f"{cluster.endpoint}/version", context=context, timeout=600) as response:
        assert response.status == 200


def test_the_pin_is_what_openssl_says(cluster: RunningCluster) -> None:
    command = "openssl x509 -pubkey -noout -in '%s' | openssl pkey -pubin -outform der | openssl dgst -sha256 -r"
    digest = subprocess.run(["sh", "-c", command % cluster.ca_file], capture_output=True, text=True, check=True).stdout
    assert cluster.ca_hash == f"sha256:{digest.split()[0]}"


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
