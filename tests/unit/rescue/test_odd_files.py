# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files, uploads and inputs of the controller that are not what they should be."""

from __future__ import annotations

import io

import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import given

from ansible_collections.kubenode.provision.plugins.action import machine_quarantine
from ansible_collections.kubenode.provision.plugins.filter import node_user_data
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import role_inputs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import builds, run_server, tarballs
from tests.unit.common import odd


def taken(content: bytes, folder) -> bytes:
    run_server._take(str(folder / "x"), io.BytesIO(content))
    return (folder / "x").read_bytes()


def test_a_file_in_chunks_is_taken(tmp_path):
    assert taken(b"3\r\nabc\r\n0A \t;name=x\r\n0123456789\r\n0\r\n\r\n", tmp_path) == b"abc0123456789"


@pytest.mark.parametrize("size", [*odd.WORDS, "", " 3", "0_3", "0X3", "3 3", "g", "\t3"])
def test_a_chunk_whose_size_is_no_number_is_refused(size, tmp_path):
    with pytest.raises(run_server._Broken):
        taken(size.encode() + b"\r\nabc\r\n0\r\n\r\n", tmp_path)
    assert list(tmp_path.iterdir()) == []


@odd.examples()
@given(odd.texts)
def test_any_line_is_a_size_or_refused(text):
    try:
        assert 0 <= run_server._chunk_size(io.BytesIO(text.encode("utf-8", "replace") + b"\r\n")) <= 16 << 20
    except run_server._Broken:
        return


def test_a_damaged_entry_of_any_depth_keeps_its_machine_in_quarantine(tmp_path):
    (tmp_path / "node-1.json").write_text(odd.DEEP)
    entry = machine_quarantine.Quarantine(str(tmp_path)).entry("node-1")
    assert entry is not None
    assert "is damaged" in entry.reason


def test_a_damaged_record_of_an_archive_is_none(tmp_path):
    (tmp_path / "x.tar.json").write_text(odd.DEEP)
    (tmp_path / "x.tar").write_text("x")
    findings: list[str] = []
    found = tarballs._file({"digest": "x"}, "rootfs", "x.tar", {"dest": str(tmp_path)}, findings)
    assert found["there"] is False
    assert len(findings) == 1


def test_an_upload_from_what_is_no_address_is_a_finding():
    upload = {"name": "a", "image_url": "http://ex\u2100mple.com/a.raw", "sha256": "a" * 64}
    with pytest.raises(ValueError, match="its address is none"):
        builds.builds({"matrix": {}, "uploads": [upload]}, [])


@pytest.mark.parametrize("limit", odd.NUMBERS)
def test_a_limit_of_user_data_is_a_number(limit):
    with pytest.raises(AnsibleFilterError, match="give a number of bytes"):
        node_user_data.node_user_data({}, limit=limit)


@pytest.mark.parametrize("text", ["fe80::1%x; drop", "fe80::%a/64", "", "²", "1_0.0.0.0/8", "192.0.2.0/٣"])
def test_a_network_that_is_let_in_has_no_zone(text):
    said = []
    problems = type("Problems", (), {"say": lambda _self, *words: said.append(words)})()
    addresses = {"bind_addr": ":1", "metrics_addr": "0", "publish_addr": "", "allow": [text, "2001:db8::/64"]}
    role_inputs._addresses(addresses, problems)
    assert [words[:2] for words in said] == [("allow", text)]


@pytest.mark.parametrize(
    "text", ["http://[", "http://h:0", "http://h:99999", "http://h:²", "http://h:1_0", "http://h/ü"]
)
def test_a_url_of_the_image_server_is_one(text):
    assert not role_inputs._is_url(text)
    assert role_inputs._is_url("http://192.0.2.1:8084")


@pytest.mark.parametrize("text", odd.NUMBERS)
def test_a_port_of_the_image_server_is_a_number(text):
    with pytest.raises(ValueError):
        role_inputs.address(f":{text}")
