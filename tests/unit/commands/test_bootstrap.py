# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap data and image heads are recognised by their content."""

from __future__ import annotations

import gzip

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.arguments import kind_of_bootstrap
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.raw_disk import check_head


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


HEAD = bytes(510) + b"\x55\xaa"


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (b"QFI\xfb" + HEAD[4:], "qcow2"),
        (b"<!DOCTYPE html><html>", "error page"),
        (bytes(257) + b"ustar" + bytes(600), "tar"),
        (bytes(4096), "55 AA"),
        (b"", "55 AA"),
        (HEAD + bytes(3584) + b"EFI PART", "4096-byte sectors"),
    ],
)
def test_what_is_no_raw_disk(head, named):
    with pytest.raises(Refused, match=named):
        check_head(head, 512)


def test_what_is_a_raw_disk():
    check_head(HEAD + b"EFI PART", 512)
    check_head(HEAD + bytes(3584) + b"EFI PART", 4096)
    with pytest.raises(Refused, match="512-byte sectors"):
        check_head(HEAD + b"EFI PART", 4096)
