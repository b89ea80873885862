# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of machines, servers and people may be long: what is looked for in them is looked for once.

A pattern that tries each place of such a text up to its end would take hours here.
"""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import web
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import inspection
from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import codes, join_files
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand import incoming, invocation
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import post_install
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import trust
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote

MANY = 400_000
LINES, BLANKS = "\n" * MANY, " " * MANY
DIGEST = "5f" * 32


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: join_files.server_of(LINES + "- server: https://a.example/" + BLANKS), "https://a.example"),
        (lambda: join_files.server_of(BLANKS + LINES), None),
        (lambda: api_server._authorities(LINES + "  certificate-authority-data: QUJD" + BLANKS), ["QUJD"]),
        (lambda: api_server.pem_blocks("-----BEGIN A-----" + LINES + "!", "A"), []),
        (lambda: api_server.pem_blocks("-----BEGIN A-----" + LINES + "QUJD-----END A-----", "A"), [b"ABC"]),
        (lambda: trust.certificates("-----BEGIN A-----" + LINES), []),
        (lambda: trust.certificates("-----BEGIN A-----\n" * (MANY // 18)), []),
        (lambda: codes.failure(1, "x\n[ERROR A]: b" + LINES + "c").detail, "its checks: A: b c"),
        (lambda: codes.failure(1, "x" + LINES + "c").detail, "c"),
        (lambda: post_install.own_host_keys(LINES + BLANKS), False),
        (lambda: post_install.own_host_keys(LINES + BLANKS + "ssh_keys :"), True),
        (lambda: inspection.masked_keyfile(("psk=a\n" + "psk" * (MANY // 3)).encode())[:12], "psk=********"),
        (lambda: inspection.masked_keyfile(LINES.encode()), LINES),
        (lambda: web.parse_challenge("Bearer " + "a" * MANY + ',b="c"'), ("bearer", {"b": "c"})),
        (lambda: incoming.Digest.pick(DIGEST + " a" + BLANKS + "b", "c"), DIGEST),
        (lambda: invocation.plain_key(b"ssh-rsa AAAA c" + BLANKS.encode() + b"d"), ""),
        (lambda: remote.classify("No " * (MANY // 3)).kind, remote.SILENT),
        (lambda: remote.classify("No ED25519 host key is known for a and you want one").kind, remote.OTHER_KEY),
    ],
)
def test_a_long_text_is_looked_through_once(found, expected):
    assert found() == expected
