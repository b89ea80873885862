# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments: every area says the same, and what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import iso, kargs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import read
from tests.unit.liveimage import maker


@pytest.fixture(scope="module", params=["2021-header", "2023-igninfo", "s390x"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> iso.Iso:
    layout = maker.LAYOUTS[request.param]
    return iso.inspect(str(maker.make(tmp_path_factory.mktemp("kargs") / "base.iso", layout)))


def edited(base: iso.Iso, **edit) -> kargs.KernelArguments:
    return iso.of(iso.customise(base, arguments=kargs.Edit(**edit))).kernel_arguments


def test_published_arguments_are_read(base):
    assert base.kernel_arguments.current == base.kernel_arguments.default == maker.KARGS
    assert not base.customised


def test_append_replace_and_delete(base):
    found = edited(
        base,
        append=("console=ttyS0,115200n8",),
        replace=("ignition.platform.id=metal=qemu",),
        delete=("ignition.firstboot",),
    )
    assert found.current.split() == [maker.KARGS.split()[0], "ignition.platform.id=qemu", "console=ttyS0,115200n8"]
    assert found.default == maker.KARGS


def test_every_area_is_full_and_says_the_same(base):
    changed = iso.customise(base, arguments=kargs.Edit(append=("quiet",)))
    for area in base.kernel_arguments.areas:
        text = read(changed, area.extent.offset, area.extent.length)
        assert text == (f"{maker.KARGS} quiet".encode() + area.end).ljust(area.extent.length, area.pad)


def test_as_many_bytes_as_fit(base):
    room = base.kernel_arguments.limit - len(maker.KARGS) - 1
    assert edited(base, append=("x" * room,)).current.endswith("x" * room)
    with pytest.raises(ImageError, match="1 more than the"):
        edited(base, append=("x" * (room + 1),))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"delete": ("absent",)}, "cannot be deleted"),
        ({"replace": ("ignition.platform.id=qemu=metal",)}, "cannot be replaced"),
        ({"replace": ("short=1",)}, "not KEY=OLD=NEW"),
        ({"append": ("two words",)}, "one argument without blanks"),
        ({"append": ("line\nbreak",)}, "one argument without blanks"),
        ({"append": ("",)}, "one argument without blanks"),
        ({"append": ("\x00",)}, "one argument without blanks"),
    ],
)
def test_bad_arguments_are_refused(base, edit, message):
    with pytest.raises(ImageError, match=message):
        edited(base, **edit)


def test_text_that_ends_like_its_padding_is_refused(tmp_path):
    base = iso.inspect(str(maker.make(tmp_path / "base.iso", maker.Layout())))
    with pytest.raises(ImageError, match="fills their area"):
        edited(base, append=("color=#",))


def broken(tmp_path: Path, **changes) -> Path:
    info = json.loads(maker.contents(maker.Layout())["/coreos/kargs.json"]) | changes
    layout = maker.Layout(miniso=False, more={"/coreos/kargs.json": json.dumps(info).encode()})
    return maker.make(tmp_path / "base.iso", layout)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 4096}, "between 2 and 2048"),
        ({"size": "1139"}, "between 2 and 2048"),
        ({"files": []}, "no area for kernel arguments"),
        ({"files": [{"path": "absent", "offset": 0}]}, "not in the image"),
        ({"files": [{"path": "isolinux/isolinux.cfg", "offset": 10**9}]}, "outside"),
        ({"files": [{"path": "isolinux/isolinux.cfg", "offset": -1}]}, "outside"),
        ({"files": [{"path": "isolinux/isolinux.cfg", "offset": 7, "pad": "##"}]}, "not one ASCII character"),
        (
            {"files": [{"path": "isolinux/isolinux.cfg", "offset": 7}, {"path": "zipl.prm", "offset": 0}], "size": 7},
            "differ",
        ),
        ({"files": "none"}, "not what it should be"),
    ],
)
def test_a_description_that_cannot_be_is_refused(tmp_path, changes, message):
    with pytest.raises(ImageError, match=message):
        iso.inspect(str(broken(tmp_path, **changes)))
