# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each way a join can fail: its code, within its time, and nothing left on the machine."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from lab.cluster.running import RunningCluster
from lab.running import RunningLab
from tests.unit.node_join._machines import Authority

pytestmark = [pytest.mark.nspawn, pytest.mark.cluster, pytest.mark.timeout(560)]

OTHER = Authority("other")
PIN = "sha256:" + "0" * 64


def nothing_left(joiner) -> None:
    """The end state after every failure: no file of a join, no kubelet, no Node."""
    assert joiner.files() == set()
    assert joiner.kubelet() in ("inactive", "failed")
    assert joiner.node.name not in joiner.cluster.nodes()


@pytest.mark.parametrize(
    ("code", "variables"),
    [
        ("ca_mismatch", {"ca_cert": OTHER.pem}),
        ("pin_mismatch", {"ca_cert": None, "discovery": {"ca_hashes": [PIN]}}),
        ("pin_mismatch", {"discovery": {"ca_hashes": [PIN]}}),
        ("discovery_signature", {"ca_cert": None, "discovery": {"jws": True}}),
        ("token_refused", {}),
    ],
    ids=["wrong CA", "wrong pin", "CA and pin differ", "wrong signature", "wrong secret"],
)
def test_refused_before_anything_is_written(joiner, code, variables):
    # a token of which only the secret is wrong: known to the cluster, and its signature does not fit
    token = joiner.cluster.token()[:7] + "0" * 16
    done = joiner.run(token=token, timeout=30, **variables)
    assert (done.rc, done.report["failed_with"]["failure"]["code"]) == (2, code), done.output
    assert done.report["applied"] == {}
    nothing_left(joiner)


def test_expired_token(joiner):
    done = joiner.run(token=joiner.cluster.token(ttl=0), timeout=30)
    assert done.report["failed_with"]["failure"]["code"] == "token_refused", done.output
    nothing_left(joiner)


def test_a_token_that_may_not_ask(joiner):
    token = joiner.cluster.token()
    joiner.cluster.bootstrap(False)
    done = joiner.run(token=token, timeout=30)
    assert done.report["failed_with"]["failure"]["code"] == "csr_forbidden", done.output
    nothing_left(joiner)


def test_label_that_a_kubelet_may_not_set(joiner):
    done = joiner.run(token=joiner.cluster.token(), labels={"node-role.kubernetes.io/worker": ""})
    assert "join_labels: a kubelet may not set the label" in done.output
    assert done.report["seen"] == {}
    nothing_left(joiner)


def test_nobody_answers(joiner, lab_nspawn: RunningLab):
    nobody = lab_nspawn.controller.rpartition(".")[0] + ".253"
    began = time.monotonic()
    done = joiner.run(api_server=f"https://{nobody}:6443", token=joiner.cluster.token(), timeout=5)
    assert done.report["failed_with"]["failure"]["code"] == "api_unreachable", done.output
    # the limit of the check is 5 s; the rest is Ansible on a busy host
    assert time.monotonic() - began < 120
    nothing_left(joiner)


def test_nobody_approves(joiner):
    joiner.cluster.approve(False)
    done = joiner.run(token=joiner.cluster.token(), timeout=12)
    assert done.code == "csr_pending", done.output
    assert "nothing approves it" in done.said
    assert "node-csr-" in done.said or "csr-" in done.said
    nothing_left(joiner)


def test_somebody_denies(joiner):
    cluster: RunningCluster = joiner.cluster
    cluster.approve(False)
    known = {request["metadata"]["name"] for request in cluster.requests()}
    stop = threading.Event()

    def deny() -> None:
        while not stop.wait(0.2):
            for request in cluster.requests():
                if request["metadata"]["name"] not in known:
                    cluster.kubectl("certificate", "deny", request["metadata"]["name"])

    thread = threading.Thread(target=deny)
    thread.start()
    try:
        done = joiner.run(token=cluster.token(), timeout=200)
    finally:
        stop.set()
        thread.join()
    assert done.code == "csr_denied", done.output
    nothing_left(joiner)


def test_name_of_another_machine(joiner):
    other = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": joiner.node.name},
        "spec": {"providerID": "other://1"},
    }
    joiner.cluster.kubectl("create", "-f", "-", text=json.dumps(other))
    for given in ({"token": joiner.cluster.token()}, {"token_create": {"kubeconfig": str(joiner.cluster.kubeconfig)}}):
        done = joiner.run(timeout=30, **given)
        failure = done.report["failure"] or done.report["failed_with"]["failure"]
        assert failure["code"] == "name_taken", done.output
        assert joiner.files() == set()
        assert joiner.kubelet() == "inactive"
    assert joiner.cluster.nodes()[joiner.node.name]["spec"]["providerID"] == "other://1"


@pytest.fixture
def late_server(lab_nspawn: RunningLab, tmp_path) -> Iterator[tuple[str, str]]:
    """(address, CA) of a server whose clock is ten minutes ahead."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def date_time_string(self, timestamp=None):
            return formatdate(time.time() + 600, usegmt=True)

        def do_GET(self):
            body = b'{"gitVersion": "v1.36.0"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    authority, address = Authority(), lab_nspawn.controller
    (tmp_path / "server.pem").write_text(authority.server(address))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = http.server.ThreadingHTTPServer((address, 0), Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://{address}:{server.server_address[1]}", authority.pem
    server.shutdown()
    server.server_close()


def test_clocks_that_differ(joiner, late_server):
    address, authority = late_server
    done = joiner.run(api_server=address, ca_cert=authority, token="abcdef.0123456789abcdef", timeout=30)
    assert done.report["failed_with"]["failure"]["code"] == "clock_skew", done.output
    assert "behind that of the API server" in done.output
    nothing_left(joiner)


def test_kubelet_that_exits(joiner):
    given = {"unknown_fields": "allow", "kubelet_extra_args": {"pod-infra-container-image": "pause"}}
    done = joiner.run(token=joiner.cluster.token(), timeout=120, **given)
    assert done.code == "kubelet_exited", done.output
    assert "unknown flag: --pod-infra-container-image" in done.said
    nothing_left(joiner)


def test_a_made_token_is_removed_after_a_failure(joiner):
    joiner.cluster.approve(False)
    made = {"kubeconfig": str(joiner.cluster.kubeconfig), "description": "for the test of a failure"}
    done = joiner.run(token_create=made, timeout=8)
    assert done.code == "csr_pending", done.output
    assert "for the test of a failure" not in descriptions(joiner.cluster)
    nothing_left(joiner)


def descriptions(cluster: RunningCluster) -> set[str]:
    """What the cluster's bootstrap tokens say they are for."""
    listed = json.loads(
        cluster.kubectl(
            "-n", "kube-system", "get", "secrets", "--field-selector=type=bootstrap.kubernetes.io/token", "-o", "json"
        )
    )
    return {base64.b64decode(one["data"].get("description", "")).decode() for one in listed["items"]}
