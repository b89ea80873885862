# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprints: of host keys, as Robot reports them, and of user keys, as Robot names them."""

from __future__ import annotations

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.ssh_access import key_blob, key_lines
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import login_keys, reset_escalation
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight.fleet_check import (
    KeyNotUsable,
    check_private_key,
)
from tests.key_pairs import key_pair
from tests.waiting import until


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "id"
    key_pair(path)
    return path


def printed(path, digest):
    """The fingerprint that ssh-keygen prints."""
    line = subprocess.run(
        ["ssh-keygen", "-l", "-E", digest, "-f", f"{path}.pub"], capture_output=True, text=True, check=True
    ).stdout
    return line.split()[1].split(":", 1)[1]


def public(path):
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def test_both_fingerprints_are_those_of_ssh_keygen(key_file):
    assert ssh_access.sha256_fingerprint(public(key_file)) == printed(key_file, "sha256")
    assert login_keys.md5_fingerprint(public(key_file)) == printed(key_file, "md5")


def made_up(kind, body):
    name = kind.encode()
    return f"{kind} {base64.b64encode(len(name).to_bytes(4, 'big') + name + body).decode()}"


def reported(*fingerprints):
    return {"host_key": [{"key": {"fingerprint": one, "type": "ED25519", "size": 256}} for one in fingerprints]}


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6, unique=True), st.data())
def test_exactly_the_keys_that_were_reported_are_proven(bodies, data):
    shown = [made_up("ssh-ed25519", body) for body in bodies]
    right = data.draw(st.lists(st.sampled_from(shown), unique=True))
    rescue = reported(
        *[ssh_access.sha256_fingerprint(key) for key in right], base64.b64encode(bytes(32)).decode().rstrip("=")
    )
    assert reset_escalation.proven(shown, reset_escalation.announced(rescue)) == sorted(right)


def test_a_prefix_or_padding_is_the_same_fingerprint():
    key = made_up("ssh-ed25519", b"x")
    fingerprint = ssh_access.sha256_fingerprint(key)
    for form in (fingerprint, "SHA256:" + fingerprint, fingerprint + "="):
        assert reset_escalation.proven([key], reset_escalation.announced(reported(form))) == [key]


@pytest.mark.parametrize(
    "rescue", [{}, {"host_key": None}, {"host_key": ["x"]}, {"host_key": [{"key": None}]}, reported("", None, 7)]
)
def test_an_answer_without_keys_proves_nothing(rescue):
    assert reset_escalation.announced(rescue) == []
    assert reset_escalation.proven([made_up("ssh-ed25519", b"x")], []) == []


@given(st.text(max_size=200))
def test_hostile_key_lines_are_left_out(text):
    for key in key_lines(text) + key_lines("h ssh-ed25519 " + text):
        assert key_blob(key) is not None
        assert len(key.split(" ")) == 2


def test_lines_of_ssh_keyscan():
    key = made_up("ssh-rsa", b"y")
    lines = ["# 192.0.2.1:22 SSH-2.0-x", "192.0.2.1 " + key, "192.0.2.1 ssh-rsa AAAA", "@revoked * " + key, "junk"]
    assert key_lines("\n".join(lines)) == [key]
    assert len(key_lines(("h " + key + "\n") * 100)) == 16


def test_the_key_to_log_in_with(key_file, tmp_path):
    line = key_file.with_suffix(".pub").read_text()
    for public_option, private_option in (
        (None, str(key_file)),
        (line, None),
        (f"{key_file}.pub", None),
        (None, f"{key_file}.pub"),
        (line, str(key_file)),
    ):
        assert login_keys.choose_keys(public_option, private_option) == [public(key_file)]


@pytest.mark.parametrize(
    ("public_option", "private_option", "field"),
    [
        (None, None, "ssh_private_key: missing"),
        ("/nowhere/id.pub", None, "ssh_public_key"),
        ("ssh-ed25519 nonsense", None, "ssh_public_key"),
        (None, "/nowhere/id", "ssh_private_key"),
    ],
)
def test_keys_that_cannot_work(public_option, private_option, field, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(Unfit, match=field):
        login_keys.choose_keys(public_option, private_option)


def test_two_keys_that_do_not_belong_together(key_file):
    with pytest.raises(Unfit, match="not the public half"):
        login_keys.choose_keys(made_up("ssh-ed25519", b"z"), str(key_file))


def test_a_private_key_is_never_taken_for_a_public_one(key_file):
    with pytest.raises(Unfit, match="neither a public key") as error:
        login_keys.choose_keys(str(key_file), None)
    assert key_file.read_text().splitlines()[1] not in str(error.value)


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """An agent of SSH of our own; returns what puts a key into it."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    until(socket.exists, "the agent listens")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    yield lambda path: subprocess.run(["ssh-add", "-q", str(path)], check=True)
    process.terminate()
    process.wait()


def registered(key):
    return {"name": "any", "fingerprint": login_keys.md5_fingerprint(key), "data": key}


def test_an_agent_s_key_is_taken_where_no_other_is_named(agent, key_file, tmp_path):
    with pytest.raises(Unfit, match="no agent of SSH has a key; set it, or ssh_public_key"):
        login_keys.choose_keys(None, None)
    agent(key_file)
    mine = public(key_file)
    assert login_keys.choose_keys(None, None) == [mine]
    assert login_keys.known_among([mine], []) == []
    assert login_keys.known_among([mine], [registered(mine)]) == [mine]
    check_private_key(f"{key_file}.pub")
    # of several, the one that Robot knows is meant
    other = tmp_path / "other"
    key_pair(other)
    agent(other)
    both = login_keys.choose_keys(None, None)
    assert sorted(both) == sorted([mine, public(other)])
    assert login_keys.known_among(both, [registered(mine)]) == [mine]
    with pytest.raises(Unfit, match=r"holds 2 keys, and Robot knows none of them\. Set it to"):
        login_keys.known_among(both, [])


def test_a_public_key_whose_private_half_is_nowhere_cannot_log_in(key_file, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(KeyNotUsable, match="whose private half no agent holds"):
        check_private_key(f"{key_file}.pub")


def test_registered_is_what_has_the_same_material(key_file):
    key = public(key_file)
    entry = {"name": "any", "fingerprint": login_keys.md5_fingerprint(key), "data": key + " other comment"}
    assert login_keys.is_registered(key, [entry])
    assert not login_keys.is_registered(key, [])
    assert not login_keys.is_registered(key, [{**entry, "data": made_up("ssh-ed25519", b"q")}])
    assert not login_keys.is_registered(key, [{**entry, "fingerprint": "00:" * 15 + "00"}])
