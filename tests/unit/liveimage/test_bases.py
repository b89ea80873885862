# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file is the base of which architecture, and when it is another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import bases as module
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Bases, NotReady
from tests.folders import put
from tests.unit.liveimage.maker import LAYOUTS, Layout, make


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        put(tmp_path / name, b"base")
    return tmp_path


def bases(place: Path, shared: Path | None = None, own: str = "x86_64") -> Bases:
    return Bases(str(place / "live.iso"), str(place / "live.img"), str(shared or ""), own)


@pytest.fixture
def at_once(monkeypatch):
    """A look at the folders is good for no time at all."""
    monkeypatch.setattr(module, "_CACHED", 0.0)


def test_the_configured_files_are_of_this_machine(tmp_path):
    found = bases(folder(tmp_path, "live.iso", "live.img"))
    for arch in ("", "x86_64", "amd64", "X86_64"):
        assert found.find(arch, "iso") == str(tmp_path / "live.iso")
        assert found.supports(arch)
    assert found.find("aarch64", "iso") is None
    assert not found.supports("aarch64")


def test_architectures_are_in_the_names(tmp_path):
    found = bases(folder(tmp_path, "live.iso", "live.img", "live_aarch64.iso", "live.arm64.img", "live_s390x.iso"))
    assert found.find("aarch64", "iso") == found.find("arm64", "iso") == str(tmp_path / "live_aarch64.iso")
    assert found.find("aarch64", "initramfs") == str(tmp_path / "live.arm64.img")
    assert found.supports("arm64")
    assert found.find("s390x", "iso") is not None
    assert not found.supports("s390x")  # no initramfs, although none was asked for


def test_a_name_of_its_own_goes_before_the_configured_one(tmp_path):
    found = bases(folder(tmp_path, "live.iso", "live_x86_64.iso"))
    assert found.find("x86_64", "iso") == str(tmp_path / "live_x86_64.iso")
    assert found.find("", "iso") == str(tmp_path / "live.iso")


def test_names_are_matched_whole(tmp_path):
    junk = ("old-live_aarch64.iso", "live_aarch64.iso.part", "live-aarch64.iso", "live_a-b.iso", "liveXaarch64.iso")
    found = bases(folder(tmp_path, "live.iso", *junk))
    assert all(found.find(arch, "iso") is None for arch in ("aarch64", "a-b", "part"))


def test_parents_of_both_are_searched(tmp_path):
    folder(tmp_path, "a/live.iso", "b/live.img", "b/live_aarch64.iso", "a/live_aarch64.img")
    found = Bases(str(tmp_path / "a/live.iso"), str(tmp_path / "b/live.img"), "", "x86_64")
    assert found.supports("aarch64")


def test_a_shared_folder_takes_the_place_of_the_parents(tmp_path):
    place = folder(tmp_path / "own", "live.iso", "live.img", "live_aarch64.iso")
    shared = folder(tmp_path / "shared", "live_s390x.iso", "live.iso")
    found = bases(place, shared)
    assert found.find("s390x", "iso") == str(shared / "live_s390x.iso")
    assert found.find("aarch64", "iso") is None
    assert found.find("x86_64", "iso") == str(place / "live.iso")


def test_folders_that_cannot_be_read_are_no_error(tmp_path):
    found = bases(tmp_path / "gone", tmp_path / "gone too")
    assert found.find("", "iso") is None
    with pytest.raises(NotReady, match=r"base_iso \(DEPLOY_ISO\) .*: there is no file for architecture x86_64"):
        found.path("", "iso")


def test_only_files_count(tmp_path):
    (tmp_path / "live_aarch64.iso").mkdir()
    os.mkfifo(tmp_path / "live.iso")
    found = bases(tmp_path)
    assert found.find("aarch64", "iso") is None
    assert found.find("", "iso") is None


def test_a_base_that_comes_later_is_found(tmp_path, at_once):
    found = bases(tmp_path)
    assert found.find("", "iso") is None
    folder(tmp_path, "live.iso", "live.img")
    assert found.find("", "iso") == str(tmp_path / "live.iso")


def test_an_architecture_is_supported_while_its_base_is_away(tmp_path, at_once):
    found = bases(tmp_path)
    assert all(found.supports(arch) for arch in ("", "x86_64"))  # configured, and still to come
    assert not found.supports("aarch64")
    folder(tmp_path, "live_aarch64.iso", "live_aarch64.img")
    assert found.supports("aarch64")
    (tmp_path / "live_aarch64.img").unlink()  # to be replaced
    assert found.supports("arm64")
    assert "there is no file for architecture aarch64" in found.away("aarch64")
    assert not Bases(str(tmp_path / "live.iso"), "", "", "x86_64").supports("")


def test_a_base_is_read_once(tmp_path):
    path = str(make(tmp_path / "live.iso", LAYOUTS["2023-igninfo"]))
    found = bases(tmp_path)
    assert found.iso(path) is found.iso(path)


def test_a_replaced_base_is_another_one_when_it_is_whole(tmp_path, monkeypatch):
    path = str(make(tmp_path / "live.iso", LAYOUTS["2023-igninfo"]))
    found = bases(tmp_path)
    first = found.iso(path)
    monkeypatch.setattr(module, "_SETTLED", 10_000.0)
    other = make(tmp_path / "new", Layout(rootfs=400_000))
    os.replace(other, path)
    with pytest.raises(NotReady, match="is being written"):
        found.iso(path)
    monkeypatch.setattr(module, "_SETTLED", 0.0)
    second = found.iso(path)
    assert second.overlay.base.identity != first.overlay.base.identity


def test_a_base_that_is_none_is_waited_for(tmp_path, monkeypatch):
    path = folder(tmp_path, "live.iso") / "live.iso"
    found = bases(tmp_path)
    with pytest.raises(NotReady, match="is no ISO image"):
        found.iso(str(path))
    make(path, LAYOUTS["2023-igninfo"])
    monkeypatch.setattr(module, "_SETTLED", 0.0)
    assert found.iso(str(path)).blank


def test_an_initramfs_that_is_gone(tmp_path):
    found = bases(folder(tmp_path, "live.img"))
    assert found.initramfs(str(tmp_path / "live.img")).size == 4
    with pytest.raises(NotReady, match="cannot be read"):
        found.initramfs(str(tmp_path / "gone"))
