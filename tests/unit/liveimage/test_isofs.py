# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories of ISO images: what other writers and readers make of them, and what only some writers do."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from pathlib import Path

import pycdlib
import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.isofs import Extent, IsoFiles
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import whole
from tests.unit.liveimage import maker

SECTOR = 2048


def read(path: Path) -> IsoFiles:
    return IsoFiles(whole(identify(str(path))))


def by_pycdlib(path: Path, **root: str) -> dict[str, Extent]:
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    kind = next(iter(root))
    found = {}
    for folder, _folders, names in iso.walk(**root):
        for name in names:
            record = iso.get_record(**{kind: f"{folder.rstrip('/')}/{name}"})
            place = Extent(record.extent_location() * SECTOR, record.get_data_length())
            found[f"{folder.rstrip('/')}/{name}".lower()] = place
    iso.close()
    return found


@pytest.mark.parametrize("name", sorted(maker.LAYOUTS))
def test_files_are_those_that_another_reader_finds(name, tmp_path):
    layout = maker.LAYOUTS[name]
    path = maker.make(tmp_path / "base.iso", replace(layout, parent=b"\1"))
    found = by_pycdlib(path, **({"rr_path": "/"} if layout.rock_ridge else {"iso_path": "/"}))
    assert read(path).files == {name.partition(";")[0]: extent for name, extent in found.items()}
    assert read(path).volume_id == "fedora-coreos-1"


@pytest.mark.parametrize("name", sorted(maker.LAYOUTS))
def test_the_name_of_the_parent_counts_for_nothing(name, tmp_path):
    ours = read(maker.make(tmp_path / "base.iso", replace(maker.LAYOUTS[name], parent=b"\1"))).files
    for number, parent in enumerate((b"\0", b"\2", b"P")):
        other = read(maker.make(tmp_path / f"{number}.iso", replace(maker.LAYOUTS[name], parent=parent)))
        assert other.files.keys() == ours.keys()
        assert {name: extent.offset for name, extent in other.files.items()} == {
            name: extent.offset for name, extent in ours.items()
        }


def test_names_of_joliet_count_where_rock_ridge_is_absent(tmp_path):
    more = {"/a_name_that_is_long/another_name_that_is_long.ignition": b"x"}
    path = maker.make(tmp_path / "base.iso", maker.Layout(rock_ridge=False, joliet=True, miniso=False, more=more))
    files = read(path)
    assert set(more) < set(files.files)
    place = files.files[next(iter(more))]
    assert len(files.records(place)) == 2
    for record in files.records(place):
        assert struct.unpack_from("<I", path.read_bytes(), record + 2)[0] * SECTOR == place.offset


def test_long_names_links_and_folders_deeper_than_eight(tmp_path):
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=1, rock_ridge="1.09")
    long = "n" * 230 + ".img"
    iso.add_fp(io.BytesIO(b"long"), 4, "/LONG.IMG;1", rr_name=long)
    iso.add_symlink("/LINK.;1", rr_symlink_name="link", rr_path=long)
    folder = names = ""
    for depth in range(1, 11):
        folder, names = f"{folder}/D{depth}", f"{names}/folder-{depth}"
        iso.add_directory(folder, rr_name=f"folder-{depth}")
    iso.add_fp(io.BytesIO(b"deep"), 4, f"{folder}/DEEP.IMG;1", rr_name="deep.img")
    path = tmp_path / "deep.iso"
    iso.write(str(path))
    iso.close()
    files = read(path)
    assert set(files.files) == {f"/{long}", f"{names}/deep.img"}
    assert files.read(f"/{long}", 10) == b"long"
    assert files.read(f"{names}/deep.img", 10) == b"deep"


def made(tmp_path: Path, *records: bytes) -> Path:
    """An image of one folder with these records, and ten sectors of content."""
    descriptor = bytearray(SECTOR)
    descriptor[:6] = b"\x01CD001"
    descriptor[80:88] = struct.pack("<I", 30) + struct.pack(">I", 30)
    descriptor[128:130] = struct.pack("<H", SECTOR)
    descriptor[156:190] = record(b"\0", 18, SECTOR, 2)
    end = b"\xffCD001".ljust(SECTOR, b"\0")
    folder = record(b"\0", 18, SECTOR, 2) + record(b"\0", 18, SECTOR, 2) + b"".join(records)
    path = tmp_path / "made.iso"
    path.write_bytes((bytes(16 * SECTOR) + descriptor + end + folder.ljust(SECTOR, b"\0")).ljust(30 * SECTOR, b"\0"))
    return path


def record(name: bytes, sector: int, length: int, flags: int = 0, system: bytes = b"") -> bytes:
    numbers = b"".join(struct.pack("<I", value) + struct.pack(">I", value) for value in (sector, length))
    head = numbers + bytes(7) + bytes([flags]) + bytes(2) + b"\1\0\0\1" + bytes([len(name)]) + name
    head += bytes(len(head) % 2) + system
    return bytes([len(head) + 2, 0]) + head


def test_a_file_in_pieces_that_follow_each_other_is_one_file(tmp_path):
    pieces = record(b"ROOTFS.IMG;1", 19, 2 * SECTOR, 0x80), record(b"ROOTFS.IMG;1", 21, 100)
    files = read(made(tmp_path, *pieces, record(b"FILE.;1", 22, 5)))
    assert files.files == {"/rootfs.img": Extent(19 * SECTOR, 2 * SECTOR + 100), "/file": Extent(22 * SECTOR, 5)}


def test_pieces_elsewhere_are_refused(tmp_path):
    pieces = record(b"ROOTFS.IMG;1", 19, 2 * SECTOR, 0x80), record(b"ROOTFS.IMG;1", 24, 100)
    with pytest.raises(ImageError, match=r"pieces of file /rootfs\.img"):
        read(made(tmp_path, *pieces))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (record(b"FILE.;1", 29, 2 * SECTOR), r"truncated: file /file ends at byte 63488"),
        (record(b"FOLDER", 29, 2 * SECTOR, 2), "truncated: folder /folder ends at byte 63488"),
        (record(b"FOLDER", 18, SECTOR, 2), "more than 1024 characters"),
        (b"\x05\0\0\0\0", "damaged: a record of folder / is cut off"),
        (record(b"FILE.;1", 22, 5)[:32] + b"\xc8FILE.;1", "damaged: a record of folder / is cut off"),
        (record(b"F" * 200, 22, 5) * 9, "damaged: a record of folder / is cut off"),
    ],
    ids=["file-outside", "folder-outside", "folder-in-itself", "short", "name-too-long", "over-the-sector"],
)
def test_damaged_directories(broken, words, tmp_path):
    with pytest.raises(ImageError, match=words):
        read(made(tmp_path, broken))


def test_fields_that_lead_back_to_themselves(tmp_path):
    again = b"CE" + bytes([28, 1]) + b"".join(struct.pack("<I", n) + struct.pack(">I", n) for n in (25, 0, 28))
    path = made(tmp_path, record(b"FILE.;1", 22, 5, 0, again))
    data = bytearray(path.read_bytes())
    data[25 * SECTOR : 25 * SECTOR + 28] = again
    own = record(b"\0", 18, SECTOR, 2, b"SP\7\1\xbe\xef\0")
    rest = record(b"\0", 18, SECTOR, 2) + record(b"FILE.;1", 22, 5, 0, again)
    data[18 * SECTOR : 19 * SECTOR] = (own + rest).ljust(SECTOR, b"\0")
    path.write_bytes(data)
    with pytest.raises(ImageError, match="fields of a record do not end"):
        read(path)
