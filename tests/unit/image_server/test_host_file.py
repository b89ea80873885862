# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NAME.host.yml: every key, and what is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.static_folders import parse_options


def test_everything():
    own = parse_options("""
hostname: web.example.com
arch: aarch64
formats: [initramfs]
enlarge: true
initramfs_network: false
kernel_arguments: {append: [a=1], replace: [b=1=2], delete: [c], reset: true}
files:
  - {path: /etc/plain, content: "two\\nlines\\n", mode: "0640"}
  - {path: /etc/coded, content_base64: AAEC, mode: 600}
units: {a.service: "[Unit]"}
ssh_keys: [ssh-ed25519 AAAA]
merge: {passwd: {users: [{name: core, uid: 1000}]}}
agent_image: example.test/x:1
vlan_interfaces: never
ip_options: ip=dhcp
http_proxy: http://p
https_proxy: http://s
no_proxy: local
ntp_servers: [a, b]
podman_options: [--memory=1g]
environment: {NAME: "some value", NUMBER: 5}
""")
    host = own.laid_over(HostInputs("web", network="x"))
    assert (own.arch, own.formats, own.enlarge) == ("aarch64", ("initramfs",), True)
    assert host == HostInputs(
        "web", "web.example.com", "x", None, {"passwd": {"users": [{"name": "core", "uid": 1000}]}},
        {"/etc/plain": (b"two\nlines\n", 0o640), "/etc/coded": (b"\0\1\2", 0o600)}, {"a.service": "[Unit]"},
        ("ssh-ed25519 AAAA",), Edit(("a=1",), ("b=1=2",), ("c",), True), False,
    )  # fmt: skip
    assert own.agent == {
        "agent_image": "example.test/x:1", "vlan_interfaces": "never", "ip_options": "ip=dhcp", "http_proxy": "http://p",
        "https_proxy": "http://s", "no_proxy": "local", "ntp_servers": ("a", "b"), "podman_options": ("--memory=1g",),
        "environment": {"NAME": "some value", "NUMBER": "5"},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "hostname:\narch: null"])
def test_nothing(text):
    own = parse_options(text)
    assert own.laid_over(HostInputs("web")) == HostInputs("web")
    assert (dict(own.agent), own.arch, own.formats) == ({}, "", ("iso", "initramfs"))


def test_no_hostname_at_all():
    assert parse_options('hostname: ""').laid_over(HostInputs("web")).hostname == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hostnam: x", r"^hostnam: unknown key; did you mean hostname\?"),
        ("kernel_arguments: {appends: [x]}", r"^kernel_arguments.appends: unknown key"),
        ("kernel_arguments: [x]", r"^kernel_arguments: a list is no mapping"),
        ("files: {}", r"^files: a mapping is no list"),
        ("files: [{path: /x}]", r"^files\[0\]: give either content or content_base64"),
        ("files: [{path: /x, content: a, content_base64: b}]", r"^files\[0\]: give either"),
        ("files: [{content: a}]", r"^files\[0\].path is missing"),
        ("files: [{path: /x, content: {a: b}}]", r"^files\[0\].content: a mapping is no text"),
        ("files: [{path: /x, content: a, mode: 0999}]", r"^files\[0\].mode: 0999 is no file mode"),
        ("files: [{path: /x, content: a, owner: b}]", r"^files\[0\].owner: unknown key"),
        ("files: [{path: /x, content_base64: '*'}]", r"^files\[0\].content_base64 is no base64"),
        ("files: [{path: /x, content: a}, {path: /x, content: b}]", r"^files\[1\].path: /x is also files\[0\]"),
        ("units: {a.service: [x]}", r"^units.a.service: a list is no text"),
        ("ssh_keys: [[x]]", r"^ssh_keys\[0\]: a list is no text"),
        ("arch: x/y", r"^arch: x/y is no architecture"),
        ("formats: [iso, pxe]", r"^formats\[1\]: pxe is not one of iso, initramfs"),
        ("enlarge: maybe", r"^enlarge: maybe is neither true nor false"),
        ("ntp_servers: one.test", r"^ntp_servers: one.test is no list"),
        ("ignition: {}\nagent_image: x", r"^agent_image has no effect beside ignition"),
        ("[]", r"^the file is a list, not a mapping"),
        ("a: b: c", r"^the file is no YAML in line 1"),
        ("a: 1\na: 2", r"^the file in line 2: key a is given twice"),
    ],
)
def test_refused(text, message):
    with pytest.raises(ImageError, match=message):
        parse_options(text)


@given(st.text(max_size=300))
def test_any_text(text):
    try:
        parse_options(text)
    except ImageError as error:
        assert "NMState" not in str(error)
