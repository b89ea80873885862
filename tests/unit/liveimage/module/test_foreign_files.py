# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of others that have the name of an image: neither replaced nor removed; our own ones always are."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build, products
from tests.unit.liveimage.module.building import NETWORK

HOST = {"name": "web-1", "network": NETWORK}
OTHER = {**HOST, "hostname": "other"}
GONE = {"name": "web-1", "state": "absent"}
FOREIGN = b"foreign\n"
ALL = {"outputs": ["iso", "minimal_iso", "pxe"], "publish_url": "http://images.example.com"}
NOT_WRITTEN = "is not the file that was written; move it away or remove it yourself"


def put(workshop, name: str, data: bytes = FOREIGN):
    path = workshop.dest / name
    workshop.dest.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def reset(path) -> None:
    """As the module does it."""
    results: list[dict] = []
    params = {"mode": "reset", "images": [str(path)], "on_error": "fail"}
    image_build._inspect_images(
        SimpleNamespace(params=params, check_mode=False, _diff=False, exit_json=lambda **found: results.append(found))
    )
    assert results[0]["images"][0]["changed"]


@pytest.mark.parametrize("check", [True, False])
def test_absent_refuses_a_file_that_was_put_in_the_place_of_an_image(workshop, check):
    workshop.build(HOST, outputs=["iso", "initramfs"])
    path = put(workshop, "web-1.iso")
    before = workshop.written()
    result = workshop.build(GONE, check=check)["web-1"]
    assert (result["failed"], result["changed"]) == (True, False)
    assert result["msg"] == f"dest: {path} {NOT_WRITTEN}"
    assert (path.read_bytes(), workshop.written()) == (FOREIGN, before)  # the initramfs is there, too
    path.unlink()
    assert not workshop.build(GONE)["web-1"]["failed"]
    assert workshop.written() == []


def test_absent_refuses_an_image_that_others_wrote_into(workshop):
    workshop.build(HOST)
    path = workshop.dest / "web-1.iso"
    with path.open("r+b") as file:
        file.write(b"X")
    assert workshop.build(GONE)["web-1"]["msg"].endswith(NOT_WRITTEN)
    assert path.exists()


def test_absent_removes_an_image_that_was_moved_with_its_date_or_has_another_mode(workshop):
    workshop.build(HOST)
    path = workshop.dest / "web-1.iso"
    shutil.copy2(path, workshop.folder / "copy")
    shutil.move(workshop.folder / "copy", path)  # another inode, as from a backup
    path.chmod(0o644)
    assert workshop.build(GONE)["web-1"]["msg"] == "removed: web-1.iso"
    assert workshop.written() == []


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "name",
    ["web-1.iso", "web-1-minimal.iso", "web-1.initramfs", "web-1.ipxe", "live-x86_64.kernel", "live-x86_64.rootfs"],
)
def test_a_file_of_others_with_the_name_of_a_product_is_refused_before_anything_is_written(workshop, name, check):
    path = put(workshop, name)
    result = workshop.build(HOST, check=check, **ALL)["web-1"]
    assert (result["failed"], result["changed"]) == (True, False)
    why = "is there and is not a file that was written here; move it away, remove it, or give another folder"
    assert result["msg"] == f"dest: {path} {why}"
    assert (path.read_bytes(), workshop.written()) == (FOREIGN, [f"images/{name}"])


def test_a_file_of_others_of_the_same_size_is_refused_too(workshop):
    workshop.build(HOST)
    path = put(workshop, "web-2.iso", bytes((workshop.dest / "web-1.iso").stat().st_size))
    result = workshop.build({**HOST, "name": "web-2"}, HOST)
    assert ("give another folder" in result["web-2"]["msg"], result["web-1"]["failed"]) == (True, False)
    assert not any(path.read_bytes())


def test_a_file_of_others_in_the_place_of_an_image_is_not_replaced(workshop):
    workshop.build(HOST)
    path = put(workshop, "web-1.iso")
    assert "give another folder" in workshop.build(OTHER)["web-1"]["msg"]
    assert path.read_bytes() == FOREIGN


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_write_that_was_cut_off_is_finished_by_the_next_run_and_removed_by_absent(
    workshop, monkeypatch, first, moment
):
    class Cut(BaseException):
        """The process is killed."""

    replace = os.replace

    def cut_off(source, target):
        if str(target).endswith("web-1.iso"):
            if moment == "after":
                replace(source, target)
            raise Cut
        replace(source, target)

    if not first:
        workshop.build(HOST)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", cut_off)
        with pytest.raises(Cut):
            workshop.build(OTHER)
    assert products.as_written(str(workshop.dest / "web-1.iso"))
    result = workshop.build({**HOST, "hostname": "third"})["web-1"]
    assert (result["failed"], result["changed"]) == (False, True)
    assert not workshop.build({**HOST, "hostname": "third"})["web-1"]["changed"]
    assert workshop.build(GONE)["web-1"]["msg"] == "removed: web-1.iso"
    assert workshop.written() == []


def test_an_image_that_was_reset_is_still_ours_and_another_one_does_not_become_so(workshop):
    workshop.build(HOST)
    path = workshop.dest / "web-1.iso"
    image = path.read_bytes()
    reset(path)
    assert workshop.build(HOST, check=True)["web-1"]["msg"] == "would be written: web-1.iso"
    assert workshop.build(GONE, check=True)["web-1"]["msg"] == "would be removed: web-1.iso"
    assert workshop.build(HOST)["web-1"]["changed"]
    path.unlink()
    path.write_bytes(image)  # by others
    reset(path)
    assert workshop.build(GONE)["web-1"]["msg"].endswith(NOT_WRITTEN)
