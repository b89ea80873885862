# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Joins that fail: what the stand-in says, does and leaves, as the real one was seen to."""

from __future__ import annotations

import json
import subprocess

import pytest

from lab import ports
from lab.cluster.running import RunningCluster
from tests.lab.kubelet.conftest import Factory
from tests.lab.kubelet.process import Kubelet, kubeconfig
from tests.lab.kubelet.test_join import CSRS, given, node
from tests.waiting import until

pytestmark = pytest.mark.cluster

EXIT = "No valid client certificate is found and the server is responsive, exiting."
STAY = "No valid client certificate is found but the server is not responsive."


def _hurried(one: Kubelet) -> Kubelet:
    one.environment["KUBELET_STANDIN_EXIT_AFTER"] = "1"
    return one


def test_a_token_nobody_knows(cluster: RunningCluster, kubelet: Factory) -> None:
    one = _hurried(kubelet())
    given(one, cluster, "abcdef.0123456789abcdef")
    one.start(*one.flags("unknown"))
    one.saying("cannot create certificate signing request: Unauthorized")
    assert "certificate_manager.go" in one.said()
    assert one.ended() == 1
    assert EXIT in one.said()
    assert one.own.exists()  # written before there is a certificate, and useless
    assert not (one.pki / "kubelet-client-current.pem").exists()


def test_an_expired_token(cluster: RunningCluster, kubelet: Factory) -> None:
    one = _hurried(kubelet())
    given(one, cluster, cluster.token(ttl=-60))
    one.start(*one.flags("expired"))
    assert one.ended() == 1
    assert "Unauthorized" in one.said()
    assert EXIT in one.said()


def test_another_clusters_ca(cluster: RunningCluster, kubelet: Factory) -> None:
    one = _hurried(kubelet())
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    done = subprocess.run([*made, "-subj", "/CN=other", "-keyout", "/dev/null"], capture_output=True, check=True)
    text = kubeconfig(cluster.endpoint, done.stdout.decode(), {"token": cluster.token()})
    one.bootstrap.write_text(text, encoding="utf-8")
    one.start(*one.flags("wrong-ca"))
    one.saying("x509: certificate signed by unknown authority")
    one.saying(STAY)
    assert one.running
    assert one.healthz() == "ok"


def test_a_server_that_is_not_there(cluster: RunningCluster, kubelet: Factory) -> None:
    one = _hurried(kubelet())
    with ports.keep() as nowhere:
        address = "https://127.0.0.1:%d" % nowhere.getsockname()[1]
        text = kubeconfig(address, cluster.ca_pem, {"token": "abcdef.0123456789abcdef"})
        one.bootstrap.write_text(text, encoding="utf-8")
        one.start(*one.flags("nowhere"))
        one.saying("connection refused")
        one.saying(STAY)
        assert one.running


def test_a_token_that_may_not_ask(cluster: RunningCluster, kubelet: Factory) -> None:
    one = _hurried(kubelet())
    given(one, cluster, cluster.token(groups=("system:bootstrappers:other",)))
    one.start(*one.flags("forbidden"))
    one.saying("is forbidden: User")
    one.saying('cannot create resource \\"certificatesigningrequests\\"')


def test_nobody_approves_at_first(cluster: RunningCluster, kubelet: Factory) -> None:
    one = _hurried(kubelet())
    cluster.approve(False)
    try:
        given(one, cluster)
        one.start(*one.flags("pending"))
        one.saying(STAY)
        assert "Unhandled Error" not in one.said()  # a pending request is no error line
        assert not node(cluster, "pending")
    finally:
        cluster.approve(True)
    name = one.said().split('csr="')[1].split('"')[0]
    cluster.kubectl("certificate", "approve", name)
    until(lambda: node(cluster, "pending"), "the node, without a restart")


def test_a_denied_request_is_asked_again(cluster: RunningCluster, kubelet: Factory) -> None:
    one = kubelet()
    cluster.approve(False)
    try:
        given(one, cluster)
        one.start(*one.flags("denied"))
        one.saying("Waiting for CSR to be issued")
        first = one.said().split('csr="')[1].split('"')[0]
        cluster.kubectl("certificate", "deny", first)
        one.saying(f"certificate signing request {first} is denied")
        second = until(lambda: [part for part in one.said().split('csr="')[1:] if not part.startswith(first)], "more")
    finally:
        cluster.approve(True)
    cluster.kubectl("certificate", "approve", second[0].split('"')[0])
    until(lambda: node(cluster, "denied"), "the node")
    answer = json.loads(cluster.kubectl("get", "--raw", f"{CSRS}/{first}"))
    assert answer["status"]["conditions"][0]["type"] == "Denied"


def test_a_second_machine_takes_a_name_over(cluster: RunningCluster, kubelet: Factory) -> None:
    first, second = kubelet(name="a"), kubelet(name="b")
    for one in (first, second):
        given(one, cluster)
    first.start(*first.flags("twice"))
    found = until(lambda: node(cluster, "twice"), "the node")
    second.start(*second.flags("twice"))
    second.saying("Node was previously registered")
    assert node(cluster, "twice")["metadata"]["uid"] == found["metadata"]["uid"]
