# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command is called with: a machine, bootstrap data, and the keys of the rescue that go along."""

from __future__ import annotations

import base64
import gzip
import struct

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import (
    Job,
    authorized_keys,
    kind_of_bootstrap,
    plain_key,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.new_root import meta_data
from tests.key_pairs import key_pair


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["", "-a", "a-", "a..b", "a_b", "a b", "a" * 64, "a." * 127 + "ab", "10.0.0.1", "a\n"], "is not a host name"),
        (["node-1", "Node-1.example.com", "a", "a" * 63, "db.1", "rack-2.07"], "no such device"),
    ],
)
def test_a_machine_is_a_host_name_by_the_one_rule_that_all_of_the_collection_has(tmp_path, names, why):
    (tmp_path / "data").write_bytes(b"")
    for name in names:
        with pytest.raises(Refused, match=why):
            Job(str(tmp_path / "data"), name, "no-such-disk", with_keys=False)


# --- bootstrap data


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "none"),
        (b" \n", "none"),
        (b"#cloud-config\nhostname: x\n", "cloud-init"),
        (b"#!/bin/sh\n", "cloud-init"),
        (b"#include\nhttp://x/\n", "cloud-init"),
        (b"## template: jinja\n#cloud-config\n", "cloud-init"),
        (b"#cloud-config-archive\n", "cloud-init"),
        (b"#cloud-boothook\n", "cloud-init"),
        (b"MIME-Version: 1.0\n", "cloud-init"),
        (b'Content-Type: multipart/mixed; boundary="x"\n', "cloud-init"),
        (gzip.compress(b"#cloud-config\n" + b"# long\n" * 9000), "cloud-init"),
        (b'{"ignition": {"version": "3.4.0"}}', "ignition"),
        (b'\n{"ignition":{"version":"2.3.0"},"storage":{}}', "ignition"),
    ],
)
def test_kinds(data, kind):
    assert kind_of_bootstrap(data) == kind


@pytest.mark.parametrize(
    "data", [b"hello", b"{}", b'{"ignition": 3}', b"version: v1alpha1\nmachine:\n", b"\xff\xfe\x00", b"["]
)
def test_unknown_data_is_refused(data):
    with pytest.raises(Refused, match="bootstrap data: neither"):
        kind_of_bootstrap(data)


# --- the rescue's authorized keys, and the meta-data that they are handed on in


def pack(*fields: bytes) -> str:
    return base64.b64encode(b"".join(struct.pack(">I", len(field)) + field for field in fields)).decode()


ONE, TWO = (f"ssh-ed25519 {pack(b'ssh-ed25519', bytes([n]) * 32)}" for n in (1, 2))
SECURITY_KEY = f"sk-ssh-ed25519@openssh.com {pack(b'sk-ssh-ed25519@openssh.com', b'k' * 32, b'ssh:')}"


@pytest.mark.parametrize(("kind", "bits"), [("ed25519", 256), ("rsa", 2048), ("ecdsa", 256), ("ecdsa", 521)])
def test_keys_as_ssh_keygen_makes_them(tmp_path, kind, bits):
    public = key_pair(tmp_path / "key", kind, "-b", str(bits), comment="me@home now")
    assert authorized_keys(tmp_path / "key.pub") == [public]


def test_the_file_is_read_in_order_and_each_key_once(tmp_path):
    path = tmp_path / "authorized_keys"
    path.write_text(f"# mine\n\n{TWO} two\n \t{ONE}\r\n{TWO} again\n{SECURITY_KEY} stick")
    assert authorized_keys(path) == [f"{TWO} two", ONE, f"{SECURITY_KEY} stick"]


def test_without_a_file_there_are_no_keys(tmp_path):
    assert authorized_keys(tmp_path / "none") == []
    assert authorized_keys(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# " + ONE,
        f'command="reboot" {ONE}',
        f"restrict {ONE}",
        f'from="10.0.0.0/8",no-pty {ONE} comment',
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        ONE[:-8],
        ONE.replace("ssh-ed25519 ", "ssh-rsa "),
        f"ssh-ed25519 {pack(b'ssh-ed25519', b'k' * 31)}",
        f"ssh-ed25519 {pack(b'ssh-ed25519', b'k' * 32, b'more')}",
        f"ssh-rsa {pack(b'ssh-rsa', b'', b'n')}",
        f"ecdsa-sha2-nistp256 {pack(b'ecdsa-sha2-nistp256', b'nistp384', b'p' * 65)}",
        f"ssh-dss {pack(b'ssh-dss', b'p', b'q', b'g', b'y')}",
        f"ssh-ed25519-cert-v01@openssh.com {pack(b'ssh-ed25519-cert-v01@openssh.com', b'n')}",
        f"# comment\x0b{ONE}",
        f"# comment\x0c{ONE}",
        f"# comment\u2028{ONE}",
        f"# comment\r{ONE}",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_is_no_plain_key_is_skipped(tmp_path, line):
    path = tmp_path / "authorized_keys"
    path.write_bytes(line.encode() + b"\n" + TWO.encode() + b"\n")
    assert authorized_keys(path) == [TWO]


@pytest.mark.parametrize("comment", ["caf\u00e9", "a\x00b", "a\x1b[31m", "a\rb", "a\u2028b"])
def test_a_comment_that_is_not_plain_text_is_dropped(comment):
    assert plain_key(f"{ONE} {comment}".encode()) == ONE


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_are_too_strange(line):
    assert plain_key(line) == ""


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_a_comment_cannot_leave_its_place_in_the_meta_data(comment):
    key = plain_key(f"{ONE} {comment}".encode())
    found = yaml.safe_load(meta_data("node-1", [key]))
    assert set(found) == {"instance-id", "local-hostname", "public-keys"}
    assert found["public-keys"] == [f"{ONE} {comment.strip()}".strip()]


def test_the_instance_is_the_installation():
    found = [yaml.safe_load(meta_data("node-1", [], installation)) for installation in ("a" * 32, "", "")]
    assert found[0]["instance-id"] == "iid-kubenode-" + "a" * 32
    assert found[1]["instance-id"] != found[2]["instance-id"]


def test_meta_data_without_keys_names_none():
    assert set(yaml.safe_load(meta_data("node-1", []))) == {"instance-id", "local-hostname"}
