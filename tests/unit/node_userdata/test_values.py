# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What single values must look like."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data_inputs as values

DER = b"\x30\x82\x00\x05abcde"
PEM = "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n" % base64.b64encode(DER).decode()
DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (values.token, " abcdef.0123456789abcdef\n", "abcdef.0123456789abcdef"),
        (values.version, "v1.36.4", "1.36.4"),
        (values.version, "1.36.4", "1.36.4"),
        (values.cloud_provider, "", ""),
        (values.cloud_provider, "external", "external"),
        (values.api_server, "https://api.example.com", "https://api.example.com:443"),
        (values.api_server, "https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
        (values.api_server, "https://[2001:db8::1]:6443", "https://[2001:db8::1]:6443"),
        (values.certificates, "comment\r\n" + PEM.replace("\n", "\r\n") + PEM, PEM + PEM),
        (values.hostname, "node-1.example", "node-1.example"),
        (values.ssh_key, "ssh-ed25519 AAAA me@host\n", "ssh-ed25519 AAAA me@host"),
        (values.ssh_key, 'from="10.0.0.0/8" ssh-rsa AAAA', 'from="10.0.0.0/8" ssh-rsa AAAA'),
        (
            values.url_and_digest,
            f"http://10.0.0.1/p?x=%20y#sha256={DIGEST.upper()}",
            ("http://10.0.0.1/p?x=%20y", DIGEST),
        ),
        (values.proxy, "", ""),
        (values.proxy, "http://user:pass@proxy:3128", "http://user:pass@proxy:3128"),
    ],
)
def test_good(check, value, expected):
    assert check(value) == expected


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (values.token, "ABCDEF.0123456789abcdef"),
        (values.token, "abcdef.0123456789abcde"),
        (values.token, "abcdef.0123456789abcdef\nabcdef.0123456789abcdef"),
        (values.version, "1.36"),
        (values.version, "1.36.4; reboot"),
        (values.version, "01.2.3"),
        (values.cloud_provider, "hetzner"),
        (values.api_server, "http://10.0.0.1:6443"),
        (values.api_server, "https://user@10.0.0.1:6443"),
        (values.api_server, "https://10.0.0.1:6443/path"),
        (values.api_server, "https://10.0.0.1:99999"),
        (values.api_server, "https://-x:6443"),
        (values.api_server, "https://a b:6443"),
        (values.api_server, "https://a$(reboot):6443"),
        (values.certificates, ""),
        (values.certificates, PEM.replace("MI", "!!")),
        (
            values.certificates,
            PEM.replace(base64.b64encode(DER).decode(), base64.b64encode(DER[:-1]).decode()),
        ),
        (values.certificates, PEM.replace("CERTIFICATE", "PRIVATE KEY")),
        (values.hostname, "Node-1"),
        (values.hostname, "node_1"),
        (values.hostname, "a" * 64),
        (values.hostname, "a." * 127 + "aa"),
        (values.hostname, "node-1\n"),
        (values.ssh_key, "AAAA"),
        (values.ssh_key, "ssh-rsa AAAA\nssh-rsa BBBB"),
        (values.ssh_key, ""),
        (values.url_and_digest, "http://10.0.0.1/p"),
        (values.url_and_digest, "http://10.0.0.1/p#sha256=abc"),
        (values.url_and_digest, "http://10.0.0.1/p#md5=" + DIGEST),
        (values.url_and_digest, "file:///p#sha256=" + DIGEST),
        (values.url_and_digest, 'http://10.0.0.1/"p#sha256=' + DIGEST),
        (values.url_and_digest, "http://10.0.0.1/p\\#sha256=" + DIGEST),
        (values.url_and_digest, "http://10.0.0.1/p q#sha256=" + DIGEST),
        (values.url_and_digest, "http://10.0.0.1/p'q#sha256=" + DIGEST),
        (values.url_and_digest, "http://[10.0.0.1/p#sha256=" + DIGEST),
        (values.proxy, "socks5://x"),
        (values.proxy, "http://x\ny"),
    ],
)
def test_bad(check, value):
    with pytest.raises(ValueError):
        check(value)


def test_a_wrong_token_is_not_repeated():
    with pytest.raises(ValueError) as caught:
        values.token("secret.secret")
    assert "secret" not in str(caught.value)


@settings(deadline=None)
@given(st.text())
def test_source_takes_nothing_that_curl_would_read_otherwise(text):
    try:
        url, _digest = values.url_and_digest(f"http://10.0.0.1/{text}#sha256={DIGEST}")
    except ValueError:
        return
    assert url.isascii()
    assert url.isprintable()
    assert not set(url) & set(" \"'\\#")


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=3))
def test_certificates_keep_every_byte(bodies):
    ders = [b"\x30\x82" + len(body).to_bytes(2, "big") + body for body in bodies]
    pem = "".join(PEM.replace(base64.b64encode(DER).decode(), base64.b64encode(der).decode()) for der in ders)
    once = values.certificates("x\n" + pem)
    assert values.certificates(once) == once
    found = [base64.b64decode(part.split("-----END")[0]) for part in once.split("CERTIFICATE-----\n")[1::2]]
    assert found == ders
