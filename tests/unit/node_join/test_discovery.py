# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proving a cluster without its CA: pins of the public key, the signature of cluster-info, and the DER behind them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server

from ._machines import Authority

TOKEN = "abcdef.0123456789abcdef"
OURS, OTHER = Authority(), Authority("other")


def pin(authority: Authority) -> str:
    key = authority.certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return "sha256:" + hashlib.sha256(key).hexdigest()


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def cluster_info(authority=OURS, token=TOKEN, algorithm="HS256", kubeconfig=None) -> dict:
    ca = base64.b64encode(authority.pem.encode()).decode()
    kubeconfig = kubeconfig or (
        f"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n"
        '    server: https://192.0.2.1:6443\n  name: ""\nkind: Config\n'
    )
    name, secret = token.split(".")
    head = unpadded(json.dumps({"alg": algorithm, "kid": name}).encode())
    signed = f"{head}.{unpadded(kubeconfig.encode())}"
    signature = unpadded(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())
    return {"data": {"kubeconfig": kubeconfig, "jws-kubeconfig-" + name: f"{head}..{signature}"}}


def test_pin_is_kubeadms():
    assert api_server.public_key_pin(api_server.certificates(OURS.pem)[0]) == pin(OURS)


@pytest.mark.parametrize(("pins", "token"), [([pin(OURS)], None), ([], TOKEN), ([pin(OTHER), pin(OURS)], TOKEN)])
def test_proven(pins, token):
    found = api_server.discovered_ca(cluster_info(), set(pins), token)
    assert api_server.certificates(found) == api_server.certificates(OURS.pem)


def test_a_kubeconfig_in_json_is_read_too():
    ca = base64.b64encode(OURS.pem.encode()).decode()
    for indent in (None, 2):
        text = json.dumps({"clusters": [{"name": "", "cluster": {"certificate-authority-data": ca}}]}, indent=indent)
        found = api_server.discovered_ca(cluster_info(kubeconfig=text), set(), TOKEN)
        assert api_server.certificates(found) == api_server.certificates(OURS.pem)


@pytest.mark.parametrize(
    ("info", "pins", "token", "code"),
    [
        (cluster_info(OTHER), [pin(OURS)], None, "pin_mismatch"),
        (cluster_info(OTHER), [pin(OURS)], TOKEN, "pin_mismatch"),
        (cluster_info(token="abcdef.ffffffffffffffff"), [], TOKEN, "discovery_signature"),
        (cluster_info(token="ghijkl.0123456789abcdef"), [], TOKEN, "discovery_signature"),
        (cluster_info(algorithm="none"), [], TOKEN, "discovery_signature"),
        (cluster_info(kubeconfig="apiVersion: v1\n"), [], TOKEN, "discovery_signature"),
        (cluster_info(kubeconfig='{"clusters": [1]}'), [], TOKEN, "discovery_signature"),
        (
            cluster_info(kubeconfig='{"clusters": [{"cluster": {"certificate-authority-data": 1}}]}'),
            [],
            TOKEN,
            "discovery_signature",
        ),
        (
            {"data": {**cluster_info()["data"], "kubeconfig": cluster_info(OTHER)["data"]["kubeconfig"]}},
            [],
            TOKEN,
            "discovery_signature",
        ),
        ({"data": None}, [pin(OURS)], None, "discovery_signature"),
        ({}, [], TOKEN, "discovery_signature"),
    ],
)
def test_not_proven(info, pins, token, code):
    with pytest.raises(api_server.DiscoveryError) as caught:
        api_server.discovered_ca(info, set(pins), token)
    assert caught.value.code == code
    assert TOKEN.partition(".")[2] not in str(caught.value)


def test_nothing_to_prove_with():
    with pytest.raises(ValueError):
        api_server.discovered_ca(cluster_info(), set(), None)


def test_of_several_cas_only_the_pinned_is_trusted():
    kept = api_server.matching_certificates(OTHER.pem + OURS.pem, {pin(OURS)})
    assert api_server.certificates(kept) == api_server.certificates(OURS.pem)


@given(st.binary(max_size=40))
def test_any_signature_but_the_right_one_is_refused(signature):
    info = cluster_info()
    head = info["data"]["jws-kubeconfig-abcdef"].split(".")[0]
    right = info["data"]["jws-kubeconfig-abcdef"].split(".")[2]
    if unpadded(signature) == right:
        return
    info["data"]["jws-kubeconfig-abcdef"] = f"{head}..{unpadded(signature)}"
    with pytest.raises(api_server.DiscoveryError):
        api_server.discovered_ca(info, set(), TOKEN)


def test_certificate_of_a_client():
    (certificate,) = api_server.certificates(OURS.client("system:node:n1", days=(-2, 3)))
    read = x509.load_der_x509_certificate(certificate)
    start, end = api_server.validity(certificate)
    assert api_server.subject(certificate) == {"CN": "system:node:n1", "O": ["system:nodes"]}
    assert end - start == (read.not_valid_after_utc - read.not_valid_before_utc).total_seconds()


def test_times_of_both_kinds():
    (certificate,) = api_server.certificates(OURS.client("n", days=(-1, 365 * 60)))
    assert api_server.validity(certificate)[1] > 2**31


def test_signing_request():
    key = ec.generate_private_key(ec.SECP256R1())
    name = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes")]
    name.append(x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n1"))
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(name)).sign(key, hashes.SHA256())
    data = request.public_bytes(serialization.Encoding.DER)
    assert api_server.request_subject(data) == {"CN": "system:node:n1", "O": ["system:nodes"]}


@given(st.integers(0, 600), st.binary(max_size=8))
def test_broken_certificates_are_errors_of_ours(cut, tail):
    (certificate,) = api_server.certificates(OURS.pem)
    for broken in (certificate[:cut] + tail, tail + certificate, tail):
        if broken == certificate:
            continue
        for function in (
            api_server.public_key_pin,
            api_server.validity,
            api_server.subject,
            api_server.request_subject,
        ):
            with contextlib.suppress(api_server.BadCertificate):
                function(broken)


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"])
def test_no_certificate(text):
    with pytest.raises(api_server.BadCertificate):
        api_server.certificates(text)


@pytest.mark.parametrize(
    "text", ["sha256:" + "0" * 63, "0" * 64, "sha1:" + "0" * 40, None, "sha256:" + "0" * 64 + "\n"]
)
def test_no_pin(text):
    with pytest.raises(ValueError):
        api_server.check_pin(text)
