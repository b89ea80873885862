# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in against the lab's real control plane: what it does when all is well."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lab.cluster.api import Api, ApiError
from lab.cluster.running import RunningCluster
from lab.kubelet import VERSIONS
from lab.kubelet.app import csr
from tests.lab.kubelet.conftest import Factory
from tests.lab.kubelet.process import Kubelet, kubeconfig
from tests.waiting import until

pytestmark = pytest.mark.cluster

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def given(kubelet: Kubelet, cluster: RunningCluster, token: str | None = None) -> None:
    """Write its bootstrap kubeconfig."""
    user = {"token": cluster.token() if token is None else token}
    kubelet.bootstrap.write_text(kubeconfig(cluster.endpoint, cluster.ca_pem, user), encoding="utf-8")


def node(cluster: RunningCluster, name: str) -> dict[str, Any]:
    """The Node object; empty when there is none."""
    return cluster.nodes().get(name, {})


def condition(cluster: RunningCluster, name: str) -> dict[str, Any]:
    """Its Ready condition."""
    rows = node(cluster, name).get("status", {}).get("conditions", [])
    return next((row for row in rows if row["type"] == "Ready"), {})


def requests_of(
    cluster: RunningCluster, name: str, signer: str = "kube-apiserver-client-kubelet"
) -> list[dict[str, Any]]:
    """Certificate requests that name this node as user, or came with a token for it."""
    found = []
    for request in cluster.requests():
        user = request["spec"]["username"]
        if request["spec"]["signerName"].endswith(signer) and (
            user == f"system:node:{name}" or user.startswith("system:bootstrap:")
        ):
            found.append(request)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_of_each_minor(cluster: RunningCluster, kubelet: Factory, version: str) -> None:
    one, name = kubelet(version), f"minor-{version.split('.')[1]}"
    given(one, cluster)
    one.configure(
        registerWithTaints=[{"key": "pool", "value": "a", "effect": "NoSchedule"}],
        providerID="hcloud://4711",
        maxPods=42,
        kubeReserved={"memory": "100Mi"},
    )
    one.start(*one.flags(name), "--node-labels=example.com/pool=a,node.kubernetes.io/x=1", "--node-ip=198.51.100.7")
    found = until(lambda: node(cluster, name), f"node {name}")
    assert found["metadata"]["labels"]["example.com/pool"] == "a"
    assert found["metadata"]["labels"]["node.kubernetes.io/x"] == "1"
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == name
    assert {"key": "pool", "value": "a", "effect": "NoSchedule"} in found["spec"]["taints"]
    assert found["spec"]["providerID"] == "hcloud://4711"
    assert found["status"]["addresses"] == [
        {"type": "InternalIP", "address": "198.51.100.7"},
        {"type": "Hostname", "address": name},
    ]
    assert found["status"]["nodeInfo"]["kubeletVersion"] == f"v{version}"
    assert found["status"]["nodeInfo"]["bootID"]
    assert found["status"]["capacity"]["pods"] == "42"
    assert found["status"]["allocatable"]["memory"] != found["status"]["capacity"]["memory"]
    assert (one.pki / "kubelet-client-current.pem").stat().st_mode & 0o777 == 0o600
    assert one.own.stat().st_mode & 0o777 == 0o600
    assert one.bootstrap.exists()  # the kubelet never takes it away
    assert one.healthz() == "ok"

    row = until(lambda: condition(cluster, name), "a condition")
    assert row["status"] == "False"
    assert "cni plugin not initialized" in row["message"]
    one.network()
    until(lambda: condition(cluster, name).get("status") == "True", "Ready")
    lease = until(
        lambda: [item for item in cluster.api.get(LEASES)["items"] if item["metadata"]["name"] == name], "a lease"
    )[0]
    assert lease["spec"]["holderIdentity"] == name
    assert lease["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]


def test_a_restart_asks_for_nothing_and_changes_nothing(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    given(one, cluster)
    one.start(*one.flags("again"), "--node-labels=example.com/pool=first")
    before = until(lambda: node(cluster, "again"), "the node")
    assert one.stop() == 0
    asked = len(cluster.requests())
    one.bootstrap.unlink()
    one.start(*one.flags("again"), "--node-labels=example.com/pool=second")
    one.saying("Node was previously registered")
    after = node(cluster, "again")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"]["example.com/pool"] == "first"
    assert len(cluster.requests()) == asked


def test_an_external_cloud_provider(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    given(one, cluster)
    one.start(*one.flags("cloudy"), "--cloud-provider=external", "--node-ip=198.51.100.8")
    found = until(lambda: node(cluster, "cloudy"), "the node")
    keys = [taint["key"] for taint in found["spec"]["taints"]]
    assert "node.cloudprovider.kubernetes.io/uninitialized" in keys
    assert found["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"] == "198.51.100.8"


def test_a_deleted_node_stays_away_until_a_restart(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    given(one, cluster)
    one.configure(nodeStatusUpdateFrequency="300ms")
    one.start(*one.flags("deleted"))
    until(lambda: node(cluster, "deleted"), "the node")
    cluster.api.call("DELETE", f"{NODES}/deleted")
    one.saying("Error updating node status, will retry")
    assert not node(cluster, "deleted")
    assert one.stop() == 0
    one.start(*one.flags("deleted"))
    until(lambda: node(cluster, "deleted"), "the node again")


def test_a_serving_certificate_is_asked_for_and_waits(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    given(one, cluster)
    one.configure(serverTLSBootstrap=True)
    one.start(*one.flags("serving"), "--node-ip=198.51.100.9")
    found = until(lambda: requests_of(cluster, "serving", "kubelet-serving"), "a request for serving")
    assert found[0]["spec"]["username"] == "system:node:serving"
    assert sorted(found[0]["spec"]["usages"]) == ["digital signature", "server auth"]
    assert not found[0]["status"].get("conditions")
    until(lambda: node(cluster, "serving"), "the node")  # it does not depend on that
    cluster.kubectl("certificate", "approve", found[0]["metadata"]["name"])
    until((one.pki / "kubelet-server-current.pem").exists, "the serving certificate")


def test_renewal_and_a_lapsed_certificate(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    cluster.sign_for(30)  # it must have joined before its first certificate is over
    try:
        given(one, cluster)
        one.start(*one.flags("lapsed"))
        until(lambda: node(cluster, "lapsed"), "the node")
        first = (one.pki / "kubelet-client-current.pem").resolve()
        until(lambda: (one.pki / "kubelet-client-current.pem").resolve() != first, "a renewed certificate")
        assert [each["spec"]["username"] for each in cluster.requests()].count("system:node:lapsed") >= 1
        one.stop()
    finally:
        cluster.sign_for(24 * 3600)
    current = one.pki / "kubelet-client-current.pem"
    until(lambda: csr.validity(current).ends < time.time(), "the end of the certificate")
    one.bootstrap.unlink()
    status, said = one.run(*one.flags("lapsed"))
    assert status == 1
    assert "certificate is expired" in said
    given(one, cluster)
    one.start(*one.flags("lapsed"))
    one.saying("Node was previously registered")


def test_without_rotation_it_waits_for_the_certificate(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    given(one, cluster, "abcdef.0123456789abcdef")
    one.configure(rotateCertificates=False)
    one.start(*one.flags("foreground"))
    one.saying("Failed to connect to apiserver")
    assert one.healthz(1.0) != "ok"
    assert not one.own.exists()
    given(one, cluster)
    one.stop()
    one.start(*one.flags("foreground"))
    until(lambda: node(cluster, "foreground"), "the node")
    assert one.own.exists()


def test_node_restriction_is_the_servers(cluster: RunningCluster, kubelet: Factory) -> None:
    """What the stand-in registers with is really judged: it cannot touch another node."""
    one = kubelet()
    given(one, cluster)
    one.start(*one.flags("mine"))
    until(lambda: node(cluster, "mine"), "the node")
    cluster.api.call("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
    certificate = one.pki / "kubelet-client-current.pem"
    own = Api(cluster.endpoint, cluster.ca_file, (certificate, certificate))
    patch = {"metadata": {"labels": {"example.com/x": "1"}}}
    own.call("PATCH", f"{NODES}/mine", patch, "application/merge-patch+json")
    with pytest.raises(ApiError, match=r"(?i)forbidden|not allowed"):
        own.call("PATCH", f"{NODES}/other", patch, "application/merge-patch+json")
