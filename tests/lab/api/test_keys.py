# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH keys: fingerprints as ssh-keygen computes them, and what is no key."""

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.api.ssh_keys import fingerprint

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHw5G9QcFpsLR/cpqDOuQjoqpvdKTVeeNVID2mSSiQzj"


@pytest.mark.parametrize("kind", [("ed25519",), ("rsa", "-b", "2048"), ("ecdsa", "-b", "256")])
def test_same_fingerprint_as_openssh(kind, tmp_path):
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", *kind, "-N", "", "-C", "a comment", "-f", file], check=True)
    seen = subprocess.run(
        ["ssh-keygen", "-l", "-E", "md5", "-f", f"{file}.pub"], check=True, capture_output=True, text=True
    ).stdout
    assert f"MD5:{fingerprint((tmp_path / 'key.pub').read_text())} " in seen


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 %%%",
        "ssh-ed25519 QUJD",
        "ssh-dss AAAAB3NzaC1kc3M=",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "ssh-rsa " + KEY.split()[1],
        f"{KEY}\n{KEY}",
        "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode(),
    ],
)
def test_no_keys(text):
    with pytest.raises(ValueError, match="public key"):
        fingerprint(text)


@given(st.text(max_size=80))
def test_any_text_is_a_key_or_a_value_error(text):
    try:
        fingerprint(text)
    except ValueError:
        return
    assert text.split()[0].startswith(("ssh-", "ecdsa-", "sk-"))
