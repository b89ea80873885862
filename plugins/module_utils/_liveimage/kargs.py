# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kernel arguments of a CoreOS ISO: the areas its boot loaders read them from."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .._common.text import json_value
from .image_error import ImageError
from .isofs import SYSTEM_AREA, Extent, IsoFiles
from .overlay import read

INFO = "/coreos/kargs.json"
_MAGIC = b"coreKarg"
_HEADER = 72
_LARGEST = 2048  # of an area; what coreos-installer takes
_MOST_AREAS = 64
_LIMIT = 64 * 1024


@dataclass(frozen=True)
class Edit:
    """What is wanted: arguments to add, to replace (OLD=NEW as in KEY=OLD=NEW) and to delete, in this order: delete,
    replace, append; ``reset`` begins with the image's own defaults."""

    append: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    reset: bool = False

    def __bool__(self) -> bool:
        return bool(self.append or self.replace or self.delete or self.reset)


@dataclass(frozen=True)
class Area:
    """One place: its bytes, what fills it up and what ends the arguments."""

    extent: Extent
    pad: bytes
    end: bytes


@dataclass(frozen=True)
class KernelArguments:
    """The arguments an image boots with now, those it came with, and every area that repeats them."""

    current: str
    default: str
    areas: tuple[Area, ...]

    @property
    def limit(self) -> int:
        """The longest arguments that fit, in bytes."""
        return min(area.extent.length - len(area.end) for area in self.areas)

    def edited(self, edit: Edit) -> str:
        """The arguments after an edit."""
        found = (self.default if edit.reset else self.current).split()
        for wanted in _checked(edit.delete, "delete"):
            if wanted not in found:
                raise ImageError(f"kernel argument {wanted!r} cannot be deleted: there is '{' '.join(found)}'")
            found.remove(wanted)
        for wanted in _checked(edit.replace, "replace"):
            parts = wanted.split("=", 2)
            if len(parts) != 3:
                raise ImageError(f"kernel_arguments: replace {wanted!r} is not KEY=OLD=NEW")
            old, new = "=".join(parts[:2]), f"{parts[0]}={parts[2]}"
            if old not in found:
                raise ImageError(f"kernel argument {old!r} cannot be replaced: there is '{' '.join(found)}'")
            found[found.index(old)] = new
        return " ".join([*found, *_checked(edit.append, "append")])

    def patches(self, arguments: str) -> list[tuple[int, bytes]]:
        """What writes the arguments into every area."""
        text = arguments.encode("utf-8")
        if len(text) > self.limit:
            raise ImageError(
                f"the kernel arguments have {len(text)} bytes, {len(text) - self.limit} more than the {self.limit} "
                "that fit into the image"
            )
        found = []
        for area in self.areas:
            if text.endswith(area.pad) or b"\0" in text:
                raise ImageError(f"the kernel arguments end with {area.pad!r}, which fills their area")
            content = (text + area.end).ljust(area.extent.length, area.pad)
            found.append((area.extent.offset, content))
        return found


def find(files: IsoFiles) -> KernelArguments | None:
    """The areas by kargs.json or by the header of images until 2021; None when an image has none."""
    data = files.read(INFO, _LIMIT)
    if data is not None:
        return _by_info(files, data)
    return _by_header(files)


def _by_info(files: IsoFiles, data: bytes) -> KernelArguments:
    try:
        info = json_value(data)
        default, size, places = str(info["default"]), info["size"], list(info["files"])
        found = [(str(place["path"]), place["offset"], place.get("pad"), place.get("end")) for place in places]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError(f"{INFO} is not what it should be: {error}") from error
    _check_size(size)
    areas = []
    for path, offset, pad, end in found[:_MOST_AREAS]:
        file = files.find("/" + path.lstrip("/"))
        if file is None:
            raise ImageError(f"{INFO} names {path!s:.200}, which is not in the image")
        if not isinstance(offset, int) or offset < 0 or offset + size > file.length:
            raise ImageError(f"{INFO}: {size} bytes at offset {offset!r:.50} are outside {path!s:.200}")
        areas.append(Area(Extent(file.offset + offset, size), _character(pad, "#"), _character(end, "\n")))
    return _read(files, areas, default)


def _by_header(files: IsoFiles) -> KernelArguments | None:
    header = read(files.overlay, SYSTEM_AREA - 24 - _HEADER, _HEADER)
    if header[:8] != _MAGIC:
        return None
    size, default, *offsets = struct.unpack("<8Q", header[8:])
    _check_size(size)
    places = [default, *offsets[: offsets.index(0) if 0 in offsets else None]]
    for offset in places:
        if offset + size > files.overlay.size:
            raise ImageError(f"the header puts kernel arguments at byte {offset}, outside the image")
    areas = [Area(Extent(offset, size), b"#", b"\n") for offset in places]
    return _read(files, areas[1:], _text(files, areas[0]))


def _read(files: IsoFiles, areas: Sequence[Area], default: str) -> KernelArguments:
    if not areas:
        raise ImageError(f"{files.overlay.base.path} has no area for kernel arguments although it says so")
    texts = {_text(files, area) for area in areas}
    if len(texts) != 1:
        raise ImageError(f"the kernel arguments differ between the areas of {files.overlay.base.path}; it is damaged")
    return KernelArguments(texts.pop(), default, tuple(areas))


def _text(files: IsoFiles, area: Area) -> str:
    data = read(files.overlay, area.extent.offset, area.extent.length)
    try:
        return data.rstrip(area.pad).decode("utf-8").rstrip(area.end.decode("ascii")).strip()
    except UnicodeDecodeError as error:
        raise ImageError(f"the kernel arguments at byte {area.extent.offset} are no text") from error


def _check_size(size: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not 1 < size <= _LARGEST:
        raise ImageError(f"an area for kernel arguments of {size!r:.50} bytes; between 2 and {_LARGEST} are possible")


def _character(value: object, default: str) -> bytes:
    text = default if value is None else value
    if not isinstance(text, str) or len(text) != 1 or ord(text) > 127:
        raise ImageError(f"{INFO}: {value!r:.50} is not one ASCII character")
    return text.encode("ascii")


def _checked(arguments: Sequence[str], what: str) -> Sequence[str]:
    for argument in arguments:
        if not argument or any(character.isspace() or not character.isprintable() for character in argument):
            raise ImageError(f"kernel_arguments: {what} {argument!r}: one argument without blanks is needed")
    return arguments
