# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of machines, servers and users that are neither JSON, base64, YAML nor a URL: each reader has its own word."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.action import machine_lock as locks_module
from ansible_collections.kubenode.provision.plugins.module_utils._common import probe, ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common import text as common
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import request
from ansible_collections.kubenode.provision.plugins.module_utils._node import (
    api_server,
    container_images,
    info,
    node_artifacts,
)
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Pending
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import join_files
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import debian_root
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import join_inputs
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import fleet_check
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote
from provision import playbook
from tests.unit.common import answers, odd

_TEXTS = (odd.DEEP, '{"files": ' * 100_000, "{", "[]", "5", "9" * 5000)


def machine(text: str) -> SimpleNamespace:
    """A machine on which every file says this."""
    return SimpleNamespace(text=lambda path: text)


@pytest.mark.parametrize("text", _TEXTS)
def test_records_on_a_machine_are_none(text):
    host = machine(text)
    assert container_images.read_record(host) == {}
    assert Pending(host).ids() == set()
    assert node_artifacts.read_record(host, "containerd") is None
    assert info._base(host) is None


@pytest.mark.parametrize("text", _TEXTS)
def test_our_own_files_that_were_damaged_are_none(text, tmp_path):
    with pytest.raises(ValueError, match="was not written by the role join"):
        join_files.token_of(text)
    (tmp_path / "archive.json").write_text(text)
    assert debian_root._known(str(tmp_path / "archive"), "abc") is None


@pytest.mark.parametrize("encoded", ["é", "A", "=", "\ud800"])
def test_a_probe_with_other_letters_gives_no_texts(encoded):
    assert probe.fields_of(f"kubenode-probe=1\nuid=0\ntexts=M\n{encoded}\n--\nend=1\n") == {"uid": "0"}


@pytest.mark.parametrize("encoded", ["é", "A", "AAAAC3é"])
def test_a_host_key_that_is_none_is_refused(encoded):
    with pytest.raises(ssh_access.InvalidHostKey, match="not base64"):
        ssh_access.parse_host_key(f"ssh-ed25519 {encoded}")


def test_a_known_hosts_file_with_a_broken_line_has_no_fingerprint_of_it(tmp_path):
    known = remote.KnownHosts(str(tmp_path), "node-1", "os", "run")
    key = "AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
    known.path.write_text(f"alias ssh-ed25519 A\nalias ssh-ed25519 é\nalias ssh-ed25519 {key}\n", encoding="utf-8")
    assert len(known.fingerprints()) == 1


def test_a_private_key_with_other_letters_has_no_public_half(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\xc3\xa9\n-----END OPENSSH PRIVATE KEY-----\n")
    assert fleet_check._public_blob(key) is None


@pytest.mark.parametrize("pid", ["1e999", "-1e999", "NaN", '"x"', "[]", "1" * 5000])
def test_a_lock_of_no_process_is_none(pid, tmp_path):
    (tmp_path / "node-1.json").write_text(f'{{"pid": {pid}, "start": "1", "place": "x", "since": "y"}}')
    locks = locks_module.Locks(str(tmp_path))
    assert locks.take(["node-1"], locks_module.this_run(1)) == {}


@pytest.mark.parametrize("text", ["a: 2021-13-45", odd.DEEP, "a: [", "9" * 5000])
def test_drop_ins_that_are_no_yaml_are_refused(text):
    with pytest.raises(join_inputs.InvalidInput, match="not YAML"):
        join_inputs.with_drop_ins({"kubelet_drop_ins": {"10-x": text}})


@pytest.mark.parametrize("value", [odd.DEEP, "2021-13-45", "["])
def test_an_assignment_that_is_no_yaml_is_refused(value):
    with pytest.raises(playbook.UsageError, match="must be a list"):
        playbook._assignment(f"base_x={value}", {"base_x": {"type": "list"}})


@pytest.mark.parametrize("authority", ["é", "A", "w6k="])
def test_a_cluster_with_a_ca_in_other_letters_is_not_proven(authority):
    cluster = {"clusters": [{"cluster": {"certificate-authority-data": authority}}]}
    with pytest.raises(api_server.DiscoveryError, match="CA of cluster-info cannot be read"):
        api_server.discovered_ca({"data": {"kubeconfig": json.dumps(cluster)}}, ["0" * 64], None)


@pytest.mark.parametrize("error", [IndexError, TypeError, ValueError, OverflowError])
def test_an_invalid_date_gives_no_time(error, monkeypatch):
    def parse(date: str) -> None:
        raise error(date)  # which one depends on the version of Python

    monkeypatch.setattr(api_server, "parsedate_to_datetime", parse)
    assert api_server._skew("Sunday, -Nov-94 08:49:37 GMT", 1.0, 2.0) is None


@pytest.mark.parametrize("url", ["http://[", "http://[::1", "https://]/x", "http://a]"])
def test_a_url_with_half_an_address_is_refused(url):
    assert not request._is_url(url)
    with pytest.raises(ImageError, match="is no http or https URL"):
        request.common({"dest": "/x", "base_iso": "/y", "base_initramfs": None, "publish_url": url})


def test_a_good_text_is_read():
    assert request._is_url("https://[2001:db8::1]:8443/images")
    assert probe.fields_of(answers.of_probe(uid="0", record="{}")) == {"uid": "0", "record": "{}", "end": "1"}
    assert info._base(machine(json.dumps({"a": 1}))) == common.json_object('{"a": 1}') == {"a": 1}
    assert Path(remote.KnownHosts("/x", "n", "os", "r").path).name == "n.os"
