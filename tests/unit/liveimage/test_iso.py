# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of every layout: read, customised, reset, and what the kernel would unpack of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import bases, cpio, iso, kargs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import materialise, read
from tests.unit.liveimage import maker

IGNITION = b'{"ignition":{"version":"3.2.0"}}'
URL = "https://images.example.com/rootfs.img"


@pytest.fixture(scope="module", params=sorted(maker.LAYOUTS))
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maker.make(tmp_path_factory.mktemp("iso") / f"{request.param}.iso", maker.LAYOUTS[request.param])


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maker.make(tmp_path_factory.mktemp("iso") / "base.iso", maker.Layout())


def written(overlay, folder: Path) -> Path:
    target = folder / "image"
    materialise(overlay, str(target))
    return target


def test_embedded_ignition_is_what_the_kernel_unpacks(base, tmp_path):
    image = written(iso.customise(iso.inspect(str(base)), IGNITION), tmp_path)
    assert image.stat().st_size == base.stat().st_size
    assert iso.inspect(str(image)).embedded == {"config.ign": IGNITION}


def test_nothing_outside_the_areas_differs(base, tmp_path):
    found = iso.inspect(str(base))
    edit = kargs.Edit(append=("console=ttyS0",)) if found.kernel_arguments else None
    image = written(iso.customise(found, IGNITION, arguments=edit), tmp_path)
    areas = [found.area.extent, *(area.extent for area in (found.kernel_arguments.areas if edit else ()))]
    before, after = bytearray(base.read_bytes()), bytearray(image.read_bytes())
    for area in areas:
        before[area.offset : area.offset + area.length] = after[area.offset : area.offset + area.length] = b""
        assert len(before) == len(after)
        before[area.offset : area.offset] = after[area.offset : area.offset] = bytes(area.length)
    assert before == after


def test_reset_gives_the_published_image_back(base, tmp_path):
    found = iso.inspect(str(base))
    edit = kargs.Edit(append=("console=ttyS0",)) if found.kernel_arguments else None
    image = written(iso.customise(found, IGNITION, arguments=edit), tmp_path)
    assert iso.inspect(str(image)).customised
    again = tmp_path / "reset"
    materialise(iso.reset(iso.inspect(str(image))), str(again))
    assert again.read_bytes() == base.read_bytes()


def test_icc_15_4_an_area_inside_a_boot_image_is_used(tmp_path):
    base = maker.make(tmp_path / "s390x.iso", maker.LAYOUTS["s390x"])
    found = iso.inspect(str(base))
    boot = found.files.files["/images/cdboot.img"]
    assert boot.offset < found.area.extent.offset < boot.offset + boot.length
    image = written(iso.customise(found, IGNITION, arguments=kargs.Edit(append=("rd.neednet=1",))), tmp_path)
    again = iso.inspect(str(image))
    assert again.embedded == {"config.ign": IGNITION}
    assert again.kernel_arguments.current == f"{maker.KARGS} rd.neednet=1"


def test_icc_15_5_no_old_bytes_stay_behind_the_archive(current, tmp_path):
    large = written(iso.customise(iso.inspect(str(current)), random.Random(1).randbytes(100_000)), tmp_path)
    found = iso.inspect(str(large))
    small = iso.customise(found, IGNITION, force=True)
    area = read(small, found.area.extent.offset, found.area.extent.length)
    archive = cpio.archive({"config.ign": IGNITION})
    assert area == archive.ljust(maker.AREA, b"\0")


def test_icc_15_3_too_large_is_refused_when_the_image_is_built(current):
    found = iso.inspect(str(current))
    ignition = random.Random(2).randbytes(maker.AREA)
    with pytest.raises(ImageError, match=r"(\d+) more than the 262144 of the embed area") as caught:
        iso.customise(found, ignition)
    packed = iso.fitting({"config.ign": ignition}, maker.AREA)
    assert f"{len(packed) - maker.AREA} more than" in str(caught.value)


def test_text_that_only_fits_as_xz_is_packed_so(current, tmp_path):
    block = random.Random(3).randbytes(90_000)
    ignition = block * 3  # further apart than gzip looks back
    found = iso.inspect(str(written(iso.customise(iso.inspect(str(current)), ignition), tmp_path)))
    assert found.embedded == {"config.ign": ignition}


@pytest.mark.parametrize("name", ["2021-header", "2022-file", "2023-igninfo", "2023-without-rock-ridge"])
def test_a_larger_area_at_the_end_is_found_by_every_name(name, tmp_path):
    base = maker.make(tmp_path / "base.iso", maker.LAYOUTS[name])
    ignition = random.Random(4).randbytes(maker.AREA * 2)
    image = written(iso.customise(iso.inspect(str(base)), ignition, enlarge=True), tmp_path)
    again = iso.inspect(str(image))
    assert again.embedded == {"config.ign": ignition}
    assert again.area.extent.offset >= base.stat().st_size
    import pycdlib

    other = pycdlib.PyCdlib()
    other.open(str(image))
    names = [
        {"iso_path": "/IMAGES/IGNITION.IMG;1"},
        *([{"joliet_path": "/images/ignition.img"}] if other.has_joliet() else []),
    ]
    for path in names:
        with other.open_file_from_iso(**path) as file:
            assert {member.name: member.data for member in cpio.members(file.read())}["config.ign"] == ignition
    other.close()


def test_an_area_inside_a_boot_image_cannot_grow(tmp_path):
    base = maker.make(tmp_path / "base.iso", maker.LAYOUTS["s390x"])
    with pytest.raises(ImageError, match="part of a boot file"):
        iso.customise(iso.inspect(str(base)), random.Random(5).randbytes(maker.AREA * 2), enlarge=True)


def test_network_profiles_need_an_image_that_reads_them(tmp_path):
    base = maker.make(tmp_path / "old.iso", maker.LAYOUTS["2021-header"])
    with pytest.raises(ImageError, match="does not read network profiles"):
        iso.customise(iso.inspect(str(base)), IGNITION, {"eth0.nmconnection": ""})


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".", "a\nb", " a", ".a", "x" * 300])
def test_profile_names_are_plain(current, name):
    with pytest.raises(ImageError, match="no plain file name"):
        iso.customise(iso.inspect(str(current)), IGNITION, {name: ""})


def test_minimal_image_is_byte_for_byte_the_published_one(current, tmp_path):
    small = iso.minimal(iso.inspect(str(current)), URL)
    published = current.with_name(current.name + ".minimal").read_bytes()
    image = written(small.overlay, tmp_path).read_bytes()
    assert len(image) == len(published)
    words = small.kernel_arguments.current.split()
    assert words == ["ignition.firstboot", "ignition.platform.id=metal", f"coreos.live.rootfs_url={URL}"]
    assert "coreos.liveiso" not in small.kernel_arguments.default
    back = small.overlay.patched(small.kernel_arguments.patches(maker.KARGS))
    extent = small.files.find("/coreos/kargs.json")
    original = maker.contents(maker.Layout())["/coreos/kargs.json"]
    assert read(back.patched([(extent.offset, original)]), 0, back.size) == published


def test_a_changed_base_makes_no_minimal_image(current, tmp_path):
    image = tmp_path / "changed.iso"
    data = bytearray(current.read_bytes())
    place = iso.inspect(str(current)).files.files["/images/pxeboot/vmlinuz"].offset
    data[place] ^= 1
    image.write_bytes(data)
    with pytest.raises(ImageError, match="another digest"):
        iso.minimal(iso.inspect(str(image)), URL)


def test_boot_files_come_out_as_they_are(current, tmp_path):
    found = iso.inspect(str(current))
    for what, path in (("kernel", "/images/pxeboot/vmlinuz"), ("rootfs", "/images/pxeboot/rootfs.img")):
        overlay = iso.boot_file(found, what)
        assert overlay.own_bytes() == 0
        assert read(overlay, 0, overlay.size) == maker.contents(maker.Layout())[path]


def test_initramfs_gets_an_archive_at_a_multiple_of_four(tmp_path):
    base = tmp_path / "initrd.img"
    base.write_bytes(cpio.archive({"init": b"#!/bin/sh\n"}) + b"")
    image = bases.customise_initramfs(bases.read_initramfs(str(base)), IGNITION, {"eth0.nmconnection": "x"})
    assert image.size % 4 == 0
    begin = base.stat().st_size + -base.stat().st_size % 4
    found = {member.name: member.data for member in cpio.members(read(image, begin, image.size))}
    assert found["config.ign"] == IGNITION
    assert found["etc/coreos-firstboot-network/eth0.nmconnection"] == b"x"
