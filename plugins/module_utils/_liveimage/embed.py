# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The area of a CoreOS ISO that its boot loader hands to the kernel as a further initramfs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .._common.text import json_value
from .errors import ImageError
from .isofs import SYSTEM_AREA, Extent, IsoFiles
from .overlay_io import read

INFO, DEFAULT = "/coreos/igninfo.json", "/images/ignition.img"
_MAGIC = b"coreiso+"
_LIMIT = 64 * 1024
LARGEST = 64 * 1024 * 1024  # bytes of an area, which is read whole; published ones have 256 KiB


@dataclass(frozen=True)
class EmbedArea:
    """Where the area is; ``source``: where that was found (igninfo, file or header)."""

    extent: Extent
    source: str
    file: str | None  # the file that is nothing but the area


def find(files: IsoFiles) -> EmbedArea:
    """The area by igninfo.json, by the file every x86 image has, or by the header of images until 2021."""
    found = _find(files)
    if found.extent.length > LARGEST:
        raise ImageError(
            f"{files.overlay.base.path} says that its embed area has {found.extent.length} bytes; {LARGEST} is the most"
        )
    return found


def _find(files: IsoFiles) -> EmbedArea:
    data = files.read(INFO, _LIMIT)
    if data is not None:
        return _by_info(files, data)
    image = files.find(DEFAULT)
    header = _by_header(files)
    if image is None:
        if header is None:
            raise ImageError(
                f"{files.overlay.base.path} has no embed area: neither {INFO} nor {DEFAULT} is in it; is it a CoreOS "
                "live ISO?"
            )
        return EmbedArea(header, "header", None)
    if header is not None and header != image:
        raise ImageError(
            f"the header of {files.overlay.base.path} and its file {DEFAULT} disagree about the embed area"
        )
    return EmbedArea(image, "file", DEFAULT)


def _by_info(files: IsoFiles, data: bytes) -> EmbedArea:
    try:
        info = json_value(data)
        path = "/" + str(info["file"]).lstrip("/")
        offset, length = info.get("offset"), info.get("length")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError(f"{INFO} is not what it should be: {error}") from error
    for name, value in (("offset", offset), ("length", length)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ImageError(f"{INFO}: {name} {value!r} is no number of bytes")
    file = files.find(path)
    if file is None:
        raise ImageError(f"{INFO} names {path!s:.200}, which is not in the image")
    start = offset or 0
    size = file.length - start if length is None else length
    if size <= 0 or start + size > file.length:
        raise ImageError(
            f"{INFO}: the area of {size} bytes at offset {start} is outside {path!s:.200}, which has "
            f"{file.length} bytes"
        )
    alone = path if (start, size) == (0, file.length) else None
    return EmbedArea(Extent(file.offset + start, size), "igninfo", alone)


def _by_header(files: IsoFiles) -> Extent | None:
    header = read(files.overlay, SYSTEM_AREA - 24, 24)
    if header[:8] != _MAGIC:
        return None
    offset, length = struct.unpack("<QQ", header[8:])
    if not length or offset < SYSTEM_AREA or offset + length > files.overlay.size:
        raise ImageError(
            f"the header of {files.overlay.base.path} puts an embed area of {length} bytes at byte {offset}, "
            f"outside the image of {files.overlay.size} bytes"
        )
    return Extent(offset, length)
