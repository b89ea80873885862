# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a join that failed is told apart: lines of the kubelet, requests, versions."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import (
    codes,
    journal,
    kubeconfig,
    tokens,
    versions,
    wait,
)

EXIT = "kubelet.service: Main process exited, code=exited, status=1/FAILURE"
CSR = "E1121 12:00:00.1 1 certificate_manager.go:566] Failed while requesting a signed certificate: "


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (CSR + "cannot create certificate signing request: Unauthorized", "token_refused"),
        (
            CSR + 'certificatesigningrequests.certificates.k8s.io is forbidden: User "system:bootstrap:abcdef" cannot '
            'create resource "certificatesigningrequests" in API group',
            "csr_forbidden",
        ),
        (CSR + "Post https://x: x509: certificate signed by unknown authority", "ca_mismatch"),
        (CSR + "x509: certificate has expired or is not yet valid: current time", "clock_skew"),
        (CSR + "dial tcp 192.0.2.1:6443: connect: no route to host", "api_unreachable"),
        ("I1121 all is well", None),
    ],
)
def test_reasons_in_the_log(line, code):
    assert journal.told(["first", line, 'E "Error getting node" err="node x not found"'])[0] == code


@pytest.mark.parametrize(
    "line",
    [
        'E run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --pod-infra-container-image"',
        "Error: unknown flag: --network-plugin",
        'E "command failed" err="failed to load kubelet config file, path: /var/lib/kubelet/config.yaml"',
        'E "command failed" err="failed to run Kubelet: running with swap on is not supported"',
        "E kubelet is configured to not run on a host using cgroup v1",
    ],
)
def test_lines_after_which_no_start_helps(line):
    assert journal.hopeless(["a", line, EXIT]) == line


def test_tail_leaves_out_noise_and_shortens():
    noise = ['E "Unable to register mirror pod because node is not registered yet"'] * 100
    text = journal.tail(["first", "x" * 1000] + noise + [EXIT, ""])
    assert text.splitlines() == ["first", "x" * 400, EXIT]
    assert journal.exits([EXIT, "a", EXIT]) == 2


def request(name: str, created: str, node: str = "n1", conditions=(), signer=wait._SIGNER) -> dict:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:" + node)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = made.public_bytes(serialization.Encoding.PEM)
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"signerName": signer, "request": base64.b64encode(pem).decode()},
        "status": {"conditions": [{"type": kind, "reason": "R", "message": "m"} for kind in conditions]},
    }


def test_the_newest_request_of_this_node():
    listed = {
        "items": [
            request("old", "2026-11-21T12:00:00Z", conditions=["Denied"]),
            request("mine", "2026-11-21T12:00:10Z"),
            request("another node's", "2026-11-21T12:00:20Z", node="n2"),
            request("serving", "2026-11-21T12:00:20Z", signer="kubernetes.io/kubelet-serving"),
            {"metadata": {}, "spec": {"signerName": wait._SIGNER, "request": "!"}},
        ]
    }
    found = wait.newest_request(listed, "n1", 1795262400)
    assert (found["name"], found["approved"], found["denied"]) == ("mine", False, None)
    assert wait.newest_request(listed, "n1", 1795262411) is None
    assert wait.newest_request(None, "n1", 0) is None


@pytest.mark.parametrize(("condition", "reason"), [("Denied", "R m"), ("Failed", "R m"), ("Approved", None)])
def test_what_became_of_a_request(condition, reason):
    listed = {"items": [request("a", "2026-11-21T12:00:00Z", conditions=[condition])]}
    assert wait.newest_request(listed, "n1", 0)["denied"] == reason


@pytest.mark.parametrize(
    ("kubelet", "server", "said"),
    [
        ("1.36.4", "v1.36.0", ""),
        ("1.33.1", "v1.36.0", ""),
        ("1.32.1", "v1.36.0", "more than 3 minor versions older"),
        ("1.36.4", "v1.35.8", "newer than the API server"),
        ("1.24.0", "v1.26.0", ""),
        ("1.23.0", "v1.26.0", "more than 2"),
        ("1.36.4", "v2.36.0", "another major version"),
        ("1.35.1-rc.1", "v1.35.1+k3s1", ""),
    ],
)
def test_versions_that_go_together(kubelet, server, said):
    assert said in versions.skew_problem(kubelet, server)
    assert bool(versions.skew_problem(kubelet, server)) is bool(said)


def test_every_failure_says_what_to_do():
    for code in codes.CODES:
        failure = codes.JoinFailure(code, "seen.")
        assert str(failure).startswith(codes.CODES[code][0] + ": seen. To mend it: ")
        assert failure.result == {"code": code, "detail": "seen."}


def test_kubeconfigs():
    text = kubeconfig.bootstrap("https://h:6443", "abcdef.0123456789abcdef")
    assert kubeconfig.token_of(text) == ("https://h:6443", "abcdef.0123456789abcdef")
    assert kubeconfig.server_of(text) == kubeconfig.server_of(kubeconfig.final("https://h:6443")) == "https://h:6443"
    assert kubeconfig.server_of("clusters:\n- cluster:\n    server: https://h:6443/\n  name: x\n") == "https://h:6443"
    assert kubeconfig.server_of("kind: Config\n") is None
    with pytest.raises(ValueError) as caught:
        kubeconfig.token_of('{"users": [{"user": {"token": "SECRET"}}]}')
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("1h30m", 5400), ("900", 900), (90, 90), ("24h", 86400)])
def test_life_of_a_token(text, seconds):
    assert tokens.ttl_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "59s", "25h", "1d", "-5m", "m"])
def test_no_life_of_a_token(text):
    with pytest.raises(tokens.InvalidToken, match=r"^ttl: "):
        tokens.ttl_seconds(text)


def test_secret_of_a_token():
    token_id, token_secret = tokens.new_token()
    made = tokens.secret(token_id, token_secret, 0, 900, ["system:bootstrappers:a"], ["authentication"], "d")
    assert made["metadata"]["name"] == "bootstrap-token-" + token_id
    assert made["type"] == "bootstrap.kubernetes.io/token"
    assert made["stringData"] == {
        "token-id": token_id,
        "token-secret": token_secret,
        "expiration": "1970-01-01T00:15:00Z",
        "description": "d",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:a",
    }
    for change in ({"groups": ["system:masters"]}, {"usages": ["all"]}):
        given = {"groups": [], "usages": [], **change}
        with pytest.raises(tokens.InvalidToken):
            tokens.secret(token_id, token_secret, 0, 900, given["groups"], given["usages"], "")
