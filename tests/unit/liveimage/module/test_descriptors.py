# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Descriptors: what the image server gets instead of a gigabyte."""

from __future__ import annotations

import json
import stat

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import urls
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay, open_overlay
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.urls import static_path
from tests.unit.liveimage.module.building import NETWORK, state

HOST = {"name": "web-1", "network": NETWORK}
URL = "http://images.example.com:8084"


def read(workshop, name):
    return json.loads((workshop.dest / f"{name}.json").read_text())


def test_a_descriptor_is_the_file_without_the_gigabyte(workshop):
    workshop.build(HOST, mode="overlay", outputs=["iso", "minimal_iso", "pxe"], publish_url=URL, permissions="0640")
    described = {}
    for path in workshop.dest.iterdir():
        data = json.loads(path.read_text())
        assert (path.name, data["host"] in data["name"]) == (data["name"] + ".json", True)
        described[data["name"]] = (path.stat().st_size, Overlay.from_dict(data["overlay"]))
    files = workshop.folder / "files"
    workshop.build(HOST, outputs=["iso", "minimal_iso", "pxe"], publish_url=URL, dest=str(files))
    assert sorted(described) == sorted(path.name for path in files.iterdir() if not path.name.startswith("."))
    for name, (_size, overlay) in described.items():
        with open_overlay(overlay) as file:
            assert file.read() == (files / name).read_bytes()
    assert described["web-1.iso"][0] < 8192
    assert {stat.S_IMODE(path.stat().st_mode) for path in workshop.dest.iterdir()} == {0o640}


def test_a_second_run_changes_nothing_and_keeps_the_date(workshop):
    workshop.build(HOST, mode="overlay")
    path = workshop.dest / "web-1.iso.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "created": 1_000_000_000}))
    path.chmod(0o600)
    before = state(path)
    assert not workshop.build(HOST, mode="overlay")["web-1"]["changed"]
    assert state(path) == before
    path.chmod(0o644)
    assert workshop.build(HOST, mode="overlay")["web-1"]["changed"]
    assert (json.loads(path.read_text())["created"], stat.S_IMODE(path.stat().st_mode)) == (1_000_000_000, 0o600)
    assert workshop.build({**HOST, "hostname": "x"}, mode="overlay")["web-1"]["changed"]
    assert json.loads(path.read_text())["created"] > 1_000_000_000


def test_a_base_that_was_changed_makes_another_descriptor(workshop):
    workshop.build(HOST, mode="overlay")
    before = read(workshop, "web-1.iso")["overlay"]["base"]
    with workshop.base.open("r+b") as file:
        file.seek(40)
        file.write(b"x")
    assert workshop.build(HOST, mode="overlay")["web-1"]["changed"]
    assert read(workshop, "web-1.iso")["overlay"]["base"]["identity"] != before["identity"]


def test_the_difference_is_that_of_the_images(workshop):
    workshop.build(HOST, mode="overlay")
    workshop.build({**HOST, "hostname": "other"}, mode="overlay", check=True)
    (diff,) = workshop.diff
    assert diff["before_header"] == str(workshop.dest / "web-1.iso.json")
    assert ("set-hostname web-1" in diff["before"], "set-hostname other" in diff["after"]) == (True, True)


def test_absent_takes_every_descriptor_of_the_host_away(workshop):
    workshop.build(HOST, {"name": "web-2"}, mode="overlay", outputs=["iso", "pxe"], publish_url=URL)
    assert workshop.build({"name": "web-1", "state": "absent"}, mode="overlay")["web-1"]["changed"]
    left = [path.name for path in workshop.dest.iterdir() if "web-1" in path.name]
    assert (left, (workshop.dest / "web-2.ipxe.json").exists()) == ([], True)


@pytest.mark.parametrize("there", ["{}", "not json", '{"kubenode_image": 2}', "[1]"])
def test_what_is_no_descriptor_of_ours_is_not_written_over(workshop, there):
    workshop.dest.mkdir()
    (workshop.dest / "web-1.iso.json").write_text(there)
    result = workshop.build(HOST, {"name": "web-2"}, mode="overlay")
    assert "is no descriptor of an image; move it away" in result["web-1"]["msg"]
    assert (workshop.dest / "web-1.iso.json").read_text() == there
    assert not result["web-2"]["failed"]


def test_urls_of_a_server_whose_paths_cannot_be_guessed(workshop):
    secret = workshop.folder / "secret"
    secret.write_text("a secret of the server, long enough\n")
    result = workshop.build(HOST, mode="overlay", publish_url=URL, names_secret_file=str(secret))["web-1"]
    path = static_path("web-1.iso", b"a secret of the server, long enough")
    assert result["urls"] == {"iso": URL + path}
    assert len(path) <= urls.LONGEST_PATH


def test_a_path_that_a_bmc_may_not_take_is_a_warning(workshop):
    name = ".".join(["a" * 40, "b" * 40, "example.com"])
    result = workshop.build({"name": name}, publish_url=URL)[name]
    assert not result["failed"]
    assert "some BMCs take 64 at most" in result["warnings"][0]
