# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Truncated, wrong and foreign ISO images are refused; fuzz/ has those of which some bytes are changed."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from tests.unit.liveimage import maker

SMALL = maker.Layout(rootfs=997, miniso=False)


#: how long a loaded machine takes to draw an example says nothing
CALM = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return maker.make(tmp_path_factory.mktemp("iso") / "base.iso", SMALL).read_bytes()


def refused(data: bytes) -> None:
    """The bytes are no image, and that is what is said."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "base.iso")
        path.write_bytes(data)
        with pytest.raises(ImageError):
            iso.inspect(str(path))


@settings(max_examples=40, deadline=None, suppress_health_check=CALM)
@given(st.data())
def test_truncated(good, data):
    refused(good[: data.draw(st.one_of(st.integers(0, len(good) - 1), st.integers(0, 60 * 2048)))])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=4096))
def test_noise(noise):
    refused(noise)
    refused(bytes(16 * 2048) + b"\x01CD001" + noise)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"file": "images/ignition.img", "offset": 0, "length": 10**9}, "outside"),
        ({"file": "images/ignition.img", "offset": -1}, "no number of bytes"),
        ({"file": "images/ignition.img", "length": 0}, "outside"),
        ({"file": "images/ignition.img", "length": True}, "no number of bytes"),
        ({"file": "images/absent.img"}, "not in the image"),
        ({}, "not what it should be"),
        ([], "not what it should be"),
    ],
)
def test_an_area_that_cannot_be(tmp_path, info, message):
    layout = maker.Layout(miniso=False, more={"/coreos/igninfo.json": json.dumps(info).encode()})
    with pytest.raises(ImageError, match=message):
        iso.inspect(str(maker.make(tmp_path / "base.iso", layout)))


def test_areas_that_overlap(tmp_path):
    """igninfo.json puts the area over the kernel arguments."""
    layout = maker.Layout(miniso=False, igninfo={"file": "isolinux/isolinux.cfg", "offset": 0, "length": 600})
    base = iso.inspect(str(maker.make(tmp_path / "base.iso", layout)))
    with pytest.raises(ImageError, match="overlap"):
        iso.customise(base, b"{}", arguments=iso.kargs.Edit(append=("quiet",)), force=True)


def test_not_a_coreos_image(tmp_path):
    layout = maker.Layout(igninfo=None, ignition_img=False, kargs=None, features=None, miniso=False)
    with pytest.raises(ImageError, match="is it a CoreOS live ISO"):
        iso.inspect(str(maker.make(tmp_path / "base.iso", layout)))


def test_a_header_that_disagrees_with_the_file(tmp_path):
    path = maker.make(tmp_path / "base.iso", maker.LAYOUTS["2021-header"])
    with path.open("r+b") as file:
        file.seek(32768 - 16)
        file.write((10**5).to_bytes(8, "little"))
    with pytest.raises(ImageError, match="disagree"):
        iso.inspect(str(path))


def test_noise_in_the_embed_area_counts_as_customised(tmp_path):
    path = maker.make(tmp_path / "base.iso", SMALL)
    area = iso.inspect(str(path)).area.extent
    with path.open("r+b") as file:
        file.seek(area.offset)
        file.write(random.Random(1).randbytes(100))
    found = iso.inspect(str(path))
    with pytest.raises(ImageError, match="customised already"):
        iso.customise(found, b"{}")
    assert iso.of(iso.customise(found, b"{}", force=True)).embedded == {"config.ign": b"{}"}
