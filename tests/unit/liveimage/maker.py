# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small ISO images laid out like CoreOS live images of every age (sizes apart, and without a boot loader)."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pycdlib

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.isofs import IsoFiles
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import whole

AREA = 256 * 1024
KARGS = "coreos.liveiso=fedora-coreos-1.2.3 ignition.firstboot ignition.platform.id=metal"
KARGS_SIZE = 1139
_ROOTFS = "/images/pxeboot/rootfs.img"
_MINISO = "/coreos/miniso.dat"
_MAIN_CONFIG, _EFI_CONFIG = "/isolinux/isolinux.cfg", "/efi/fedora/grub.cfg"


@dataclass
class Layout:
    """What an image of a certain age has."""

    igninfo: Mapping[str, object] | None = field(default_factory=lambda: {"file": "images/ignition.img"})
    ignition_img: bool = True
    header: bool = False
    kargs: str | None = "json"  # json, header, or None
    features: Mapping[str, bool] | None = field(default_factory=lambda: {"live-initrd-network": True})
    miniso: bool = True
    rock_ridge: bool = True
    joliet: bool = False
    parent: bytes = b"\1"  # how the record of ".." is named in each folder; genisoimage names it like "." on s390x
    cdboot: int = 0  # bytes of a boot image that the area is inside of, as on s390x
    rootfs: int = 300_000
    more: Mapping[str, bytes] = field(default_factory=dict)


LAYOUTS = {
    "2021-header": Layout(igninfo=None, header=True, kargs="header", features=None, miniso=False, joliet=True),
    "2022-file": Layout(igninfo=None),
    "2023-igninfo": Layout(),
    "2023-without-rock-ridge": Layout(rock_ridge=False, kargs=None),
    "s390x": Layout(
        igninfo={"file": "images/cdboot.img", "offset": 66688 + 896, "length": AREA},
        ignition_img=False,
        cdboot=66688 + 896 + AREA + 4096,
        kargs="s390x",
        joliet=True,
        parent=b"\0",
    ),
}


def karg_area(arguments: str = KARGS, size: int = KARGS_SIZE, pad: bytes = b"#", end: bytes = b"\n") -> bytes:
    """An area as it is published."""
    return (arguments.encode() + end).ljust(size, pad)


def contents(layout: Layout, *, full: bool = True) -> dict[str, bytes]:
    """Every file of the image."""
    area = karg_area()
    files = {
        "/images/pxeboot/vmlinuz": b"KERNEL" * 1000,
        "/images/pxeboot/initrd.img": b"INITRD" * 5001,
        _MAIN_CONFIG: b"append " + area + b"end\n",
        _EFI_CONFIG: b"linux /images/pxeboot/vmlinuz " + area + b"}\n",
        "/zipl.prm": b"unused\n",
    }
    if full:
        files[_ROOTFS] = bytes(hashlib.sha256(b"%d" % n).digest()[0] for n in range(997)) * (layout.rootfs // 997)
    if layout.igninfo is not None:
        files["/coreos/igninfo.json"] = json.dumps(layout.igninfo).encode()
    if layout.ignition_img:
        files["/images/ignition.img"] = bytes(AREA)
    if layout.cdboot:
        files["/images/cdboot.img"] = (b"BOOT" * 16672 + karg_area(KARGS, 896, b"\0", b"\0")).ljust(
            layout.cdboot, b"\0"
        )
    if layout.features is not None:
        files["/coreos/features.json"] = json.dumps(layout.features).encode()
    if layout.kargs == "json":
        places = [{"path": _MAIN_CONFIG.lstrip("/"), "offset": 7}, {"path": _EFI_CONFIG.lstrip("/"), "offset": 30}]
        files["/coreos/kargs.json"] = json.dumps({"default": KARGS, "size": KARGS_SIZE, "files": places}).encode()
    if layout.kargs == "header":
        files["/images/kargs.txt"] = area  # the published arguments stay somewhere of their own
    if layout.kargs == "s390x":
        places = [{"path": "images/cdboot.img", "offset": 66688, "pad": "\0", "end": "\0"}]
        files["/coreos/kargs.json"] = json.dumps({"default": KARGS, "size": 896, "files": places}).encode()
    if layout.miniso and full:
        files[_MINISO] = bytes(16384)
    return {**files, **layout.more}


def make(path: Path, layout: Layout) -> Path:
    """Write an image of this layout."""
    _write(path, contents(layout), layout)
    if layout.miniso:
        small = path.with_name(path.name + ".minimal")
        _write(small, contents(layout, full=False), layout)
        _store(path, _MINISO, recipe(path, small))
    files = _files(path)
    if layout.header or layout.kargs == "header":
        area = files.files["/images/ignition.img"]
        configs = [files.files[_MAIN_CONFIG].offset + 7, files.files[_EFI_CONFIG].offset + 30]
        default = files.files["/images/kargs.txt"].offset if layout.kargs == "header" else 0
        kargs = b"coreKarg" + struct.pack("<8Q", KARGS_SIZE, default, *configs, 0, 0, 0, 0)
        with path.open("r+b") as file:
            file.seek(32768 - 24 - 72)
            file.write(kargs if layout.kargs == "header" else bytes(72))
            file.write(b"coreiso+" + struct.pack("<QQ", area.offset, area.length))
    return path


def recipe(full: Path, small: Path) -> bytes:
    """What makes the minimal image of the full one, as coreos-installer writes it."""
    here, there = _files(full).files, _files(small).files
    table = sorted(
        {(there[name].offset, here[name].offset, there[name].length) for name in there if there[name].length}
    )
    data, rest, at = small.read_bytes(), b"", 0
    for minimal, _full, length in table:
        rest += data[at:minimal]
        at = minimal + length
    rest += data[at:]
    packed = lzma.compress(rest)
    body = b"MINISO\0\0" + _number(1) + _number(6) + b"0.20.0" + _number(len(table))
    for minimal, offset, length in table:
        body += _number(minimal // 2048) + _number(offset // 2048) + _number(length)
    return body + hashlib.sha256(data).digest() + _number(len(packed)) + packed


def _number(value: int) -> bytes:
    for limit, mark, size in ((251, None, 1), (1 << 16, 251, 2), (1 << 32, 252, 4), (1 << 64, 253, 8)):
        if value < limit:
            return (b"" if mark is None else bytes([mark])) + value.to_bytes(size, "little")
    raise ValueError(value)


def _files(path: Path) -> IsoFiles:
    return IsoFiles(whole(identify(str(path))))


def _store(path: Path, name: str, data: bytes) -> None:
    extent = _files(path).files[name]
    assert len(data) <= extent.length, len(data)
    with path.open("r+b") as file:
        file.seek(extent.offset)
        file.write(data)


def _write(path: Path, files: Mapping[str, bytes], layout: Layout) -> None:
    iso = pycdlib.PyCdlib()
    options: dict[str, Any] = {"rock_ridge": "1.09"} if layout.rock_ridge else {}
    iso.new(interchange_level=1, vol_ident="fedora-coreos-1", joliet=3 if layout.joliet else None, **options)
    folders: set[str] = set()
    for name in sorted(files):
        parts = name.strip("/").split("/")
        for depth in range(1, len(parts)):
            folder = "/" + "/".join(parts[:depth])
            if folder not in folders:
                folders.add(folder)
                iso.add_directory(_level_1(folder), **_names(folder, layout))
        data = files[name]
        iso.add_fp(io.BytesIO(data), len(data), _level_1(name) + ";1", **_names(name, layout))
    iso.write(str(path))
    iso.close()
    data = bytearray(path.read_bytes())
    for folder in _folders(data):
        parent = folder + data[folder]  # the second record
        assert data[parent + 32 : parent + 34] == b"\1\1"
        data[parent + 33 : parent + 34] = layout.parent
    path.write_bytes(data)


def _folders(data: bytearray) -> list[int]:
    """Where the records of every folder begin, plain and Joliet."""
    descriptors = [place for place in range(16 * 2048, 20 * 2048, 2048) if data[place + 1 : place + 6] == b"CD001"]
    waiting = [place + 156 for place in descriptors if data[place] in (1, 2)]  # the records of the roots
    found = []
    while waiting:
        sector, length = struct.unpack_from("<I4xI", data, waiting.pop() + 2)
        at, stop = sector * 2048, sector * 2048 + length
        found.append(at)
        while at < stop:
            if not data[at]:  # the rest of this sector is empty
                at = (at // 2048 + 1) * 2048
                continue
            if data[at + 25] & 2 and data[at + 32 : at + 34] not in (b"\1\0", b"\1\1"):
                waiting.append(at)
            at += data[at]
    return found


def _names(path: str, layout: Layout) -> dict[str, Any]:
    names = {"rr_name": path.rpartition("/")[2]} if layout.rock_ridge else {}
    return {**names, **({"joliet_path": path} if layout.joliet else {})}


def _level_1(path: str) -> str:
    parts = []
    for part in path.upper().split("/"):
        stem, dot, suffix = part.rpartition(".")
        parts.append(f"{stem[:8]}.{suffix[:3]}" if dot else part[:8])
    return "/".join(parts)
