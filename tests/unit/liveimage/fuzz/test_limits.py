# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs made to be expensive, in a process that may use little memory and little time: each is refused or harmless."""

from __future__ import annotations

import gzip
import json
import lzma
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.liveimage import maker
from tests.unit.liveimage.fuzz import targets

MEMORY, SECONDS = 512 * 1024 * 1024, 30  # address space (of which the interpreter takes a part), CPU
SECTOR = 2048
ROOT = Path(__file__).parents[4]
CHILD = """
import sys
import dev.pytest_collection
from tests.unit.liveimage.fuzz import targets
from pathlib import Path
work = targets._iso_file if sys.argv[1] == "iso-file" else targets.TARGETS[sys.argv[1]]
path = Path(sys.argv[2])
work(str(path), path.stat().st_size) if sys.argv[1] == "iso-file" else work(path.read_bytes())
"""


def folders_in_folders(folder: Path) -> Path:
    """An ISO whose folders each are in the one before forty times, ten deep: 40¹⁰ paths in a few KB, and no loop."""
    path = maker.make(folder / "base.iso", maker.Layout(rootfs=997, miniso=False, rock_ridge=False))
    data = bytearray(path.read_bytes())
    data += bytes(-len(data) % SECTOR)
    root, first = struct.unpack("<I", data[16 * SECTOR + 158 : 16 * SECTOR + 162])[0], len(data) // SECTOR
    place = data.index(b"\x06IMAGES", root * SECTOR) - 32
    data[place + 2 : place + 10] = _both(first)
    for depth in range(10):
        here, up = first + depth, first + depth - 1 if depth else root
        records = [_record(b"\0", here), _record(b"\1", up)]
        records += [_record(b"D%02d" % n, here + 1) for n in range(40)] if depth < 9 else []
        data += b"".join(records).ljust(SECTOR, b"\0")
    data[16 * SECTOR + 80 : 16 * SECTOR + 88] = _both(len(data) // SECTOR)
    path.write_bytes(data)
    return path


def _both(value: int) -> bytes:
    return struct.pack("<I", value) + struct.pack(">I", value)


def _record(name: bytes, sector: int) -> bytes:
    length = 33 + len(name) + (len(name) + 1) % 2
    head = bytes([length, 0]) + _both(sector) + _both(SECTOR) + bytes(7) + b"\x02" + bytes(2) + b"\1\0\0\1"
    return (head + bytes([len(name)]) + name).ljust(length, b"\0")


def endless_recipe(folder: Path) -> Path:
    """An ISO whose recipe makes 10 000 copies of it."""
    layout = maker.Layout(rootfs=997 * 600)
    path = maker.make(folder / "base.iso", layout)
    size = path.stat().st_size // SECTOR * SECTOR
    entries = b"".join(
        maker._number(n * size // SECTOR) + maker._number(0) + maker._number(size) for n in range(1000)
    )  # fmt: skip
    packed = lzma.compress(b"")
    body = b"MINISO\0\0" + maker._number(1) + maker._number(0) + maker._number(1000) + entries
    maker._store(path, "/coreos/miniso.dat", body + bytes(32) + maker._number(len(packed)) + packed)
    return path


def large_area(folder: Path, size: int) -> Path:
    """An ISO that says that the area for its Ignition has so many bytes."""
    path = maker.make(folder / "base.iso", maker.Layout(rootfs=997, miniso=False, rock_ridge=False))
    files = targets.iso.inspect(str(path)).files
    (record,) = files.records(files.find("/images/ignition.img"))
    data = bytearray(path.read_bytes())
    data[record + 10 : record + 18] = _both(size)
    path.write_bytes(data)
    with path.open("r+b") as file:
        file.truncate(len(data) + size)
    return path


def iso_file(make):
    return lambda folder: ("iso-file", make(folder))


def kept(parser: str, content: Callable[[], bytes]):
    def write(folder: Path) -> tuple[str, Path]:
        path = folder / "case"
        path.write_bytes(content())
        return parser, path

    return write


END = b"070701" + b"%08X" * 13 % (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0) + b"TRAILER!!!\0" + bytes(3)
ONE = b"070701" + b"%08X" * 13 % (0, 0o100600, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0) + b"a\0"
EXPENSIVE = {
    "folders-in-folders": iso_file(folders_in_folders),
    "endless-recipe": iso_file(endless_recipe),
    "gzip-of-nothing-but-ends": kept("cpio", lambda: gzip.compress(END * 500_000)),
    "gzip-of-empty-members": kept("cpio", lambda: gzip.compress(ONE * 500_000)),
    "gzip-of-zeros": kept("cpio", lambda: gzip.compress(bytes(20 * 1024 * 1024)) * 50),
    "gzip-in-a-row": kept("cpio", lambda: gzip.compress(b"") * 12_000),
    "xz-that-wants-memory": kept("cpio", lambda: lzma.compress(bytes(1024), lzma.FORMAT_XZ, preset=9)),
    "aliases": kept("nmstate", lambda: b"a: &a [%s]\n" % (b"x," * 50) + b"".join(
        b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 50)) for n in range(20))),
    "deep-document": kept("nmstate", lambda: b"interfaces: " + b"[" * 200_000),
    "deep-json": kept("nmstate", lambda: b'{"a":' * 80_000),
    "long-key": kept("nmstate", lambda: b"? " + b"a" * 500_000 + b"\n: 1\n"),
    "many-ranges": kept("range", lambda: b"bytes=" + b"0-0," * 4000),
    "long-digits": kept("range", lambda: b"bytes=" + b"9" * 16_000 + b"-"),
    "long-descriptor": kept("descriptor", lambda: json.dumps({"version": 1, "base": {
        "path": "/b", "size": 2**62, "mtime_ns": 1, "identity": "0" * 64}, "segments": [2**61] * 100_000}).encode()),
    "many-headers": kept("request", lambda: b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPENSIVE))
def test_expensive_inputs(tmp_path, name):
    parser, path = EXPENSIVE[name](tmp_path)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    done = subprocess.run(
        [sys.executable, "-c", CHILD, parser, str(path)], cwd=ROOT, preexec_fn=limit, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_the_expensive_images_are_what_they_say(tmp_path):
    """Without the limits of the parsers they would be walked: the images are otherwise well-formed."""
    assert targets.iso.inspect(str(maker.make(tmp_path / "good.iso", maker.Layout(rootfs=997)))).area
    with pytest.raises(targets.ImageError, match="more than 10000 files"):
        targets.iso.inspect(str(folders_in_folders(tmp_path)))
    with pytest.raises(targets.ImageError, match="its embed area has 68157440 bytes; 67108864 is the most"):
        targets.iso.inspect(str(large_area(tmp_path, 65 << 20)))
    with pytest.raises(targets.ImageError, match="larger than the full one"):
        targets.iso.minimal_overlay(targets.iso.inspect(str(endless_recipe(tmp_path))).files)
