# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A CoreOS live ISO: what is in it, and images that differ from it.

Its embed area is what its boot loader hands to the kernel as a further initramfs. A minimal ISO fetches its root file
system. It needs no file of its own: a recipe in the full ISO says of which ranges and of which bytes it consists.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._common.masking import without_login
from .._common.text import json_value
from . import cpio, kargs
from .base_file import identify
from .image_error import ImageError
from .isofs import SECTOR, SYSTEM_AREA, Extent, IsoFiles
from .overlay import Bytes, Overlay, Patch, Segment, Zeros, open_overlay, read, whole

INFO, DEFAULT = "/coreos/igninfo.json", "/images/ignition.img"
_MAGIC = b"coreiso+"
_LIMIT = 64 * 1024
LARGEST_EMBED_AREA = 64 * 1024 * 1024  # bytes of an area, which is read whole; published ones have 256 KiB


@dataclass(frozen=True)
class EmbedArea:
    """Where the area is; ``source``: where that was found (igninfo, file or header)."""

    extent: Extent
    source: str
    file: str | None  # the file that is nothing but the area


def find_embed_area(files: IsoFiles) -> EmbedArea:
    """The area by igninfo.json, by the file every x86 image has, or by the header of images until 2021."""
    found = _find(files)
    if found.extent.length > LARGEST_EMBED_AREA:
        raise ImageError(
            f"{files.overlay.base.path} says that its embed area has {found.extent.length} bytes; "
            f"{LARGEST_EMBED_AREA} is the most"
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


IGNITION = "config.ign"
NETWORK = "etc/coreos-firstboot-network"
FEATURES = "/coreos/features.json"
_LIVE, _ROOTFS = "coreos.liveiso=", "coreos.live.rootfs_url="
_BOOT = {
    "kernel": ("/images/pxeboot/vmlinuz", "/images/pxeboot/kernel.img", "/images/kernel.img"),
    "initramfs": ("/images/pxeboot/initrd.img", "/images/initrd.img"),
    "rootfs": ("/images/pxeboot/rootfs.img",),
}


@dataclass(frozen=True)
class Iso:
    """What an image is, read once; everything that is made of it begins here."""

    overlay: Overlay
    files: IsoFiles = field(compare=False, repr=False)
    area: EmbedArea
    kernel_arguments: kargs.KernelArguments | None
    features: Mapping[str, Any]
    embedded: Mapping[str, bytes]  # members of the embed area now
    blank: bool  # the embed area is nothing but zeros

    @property
    def customised(self) -> bool:
        """Whether something is embedded, or the kernel arguments were changed."""
        changed = self.kernel_arguments is not None and self.kernel_arguments.current != self.kernel_arguments.default
        return not self.blank or changed


def inspect(path: str) -> Iso:
    """Read a base ISO (a file or a block device)."""
    return of(whole(identify(path)))


def of(overlay: Overlay) -> Iso:
    """Read an ISO that is itself an overlay."""
    files = IsoFiles(overlay)
    area = find_embed_area(files)
    arguments = kargs.find(files)
    inside = read(overlay, area.extent.offset, area.extent.length)
    return Iso(overlay, files, area, arguments, _features(files), _members(inside), not inside.strip(b"\0"))


def customise(
    iso: Iso,
    ignition: bytes | None = None,
    network: Mapping[str, str] | None = None,
    arguments: kargs.Edit | None = None,
    *,
    force: bool = False,
    enlarge: bool = False,
    pack: Callable[[Mapping[str, bytes], str], bytes] = cpio.archive,
) -> Overlay:
    """The image with an Ignition, NetworkManager profiles for its initramfs and other kernel arguments.

    ``force``: also when the base is customised already; ``enlarge``: an Ignition that does not fit gets a larger area
    at the end of the image instead of an error.
    """
    if iso.customised and not force:
        found = ", ".join(sorted(iso.embedded)) or "kernel arguments"
        raise ImageError(
            f"base {iso.overlay.base.path} is customised already ({found}); reset it, take the published image, "
            "or use force"
        )
    members: dict[str, bytes] = {}
    if ignition is not None:
        members[IGNITION] = ignition
    for name, text in (network or {}).items():
        if not iso.features.get("live-initrd-network"):
            raise ImageError(
                f"base {iso.overlay.base.path} does not read network profiles in its initramfs; "
                "it is older than December 2021"
            )
        members[f"{NETWORK}/{profile_name(name)}"] = text.encode("utf-8")
    patches: list[tuple[int, Patch]] = []
    append: list[Patch] = []
    if members:
        archive = fitting(members, iso.area.extent.length, pack)
        if len(archive) <= iso.area.extent.length:
            patches += _filled(iso, archive)
        elif enlarge:
            more, append = _moved(iso, archive)
            patches += more
        else:
            room = iso.area.extent.length
            raise ImageError(
                f"the Ignition is too large: packed it has {len(archive)} bytes, {len(archive) - room} more than "
                f"the {room} of the embed area; shorten it, or set enlarge to true"
            )
    elif not iso.blank:
        patches.append((iso.area.extent.offset, Zeros(iso.area.extent.length)))
    if arguments:
        if iso.kernel_arguments is None:
            raise ImageError(f"base {iso.overlay.base.path} has no area for kernel arguments; it is too old")
        patches += iso.kernel_arguments.patches(iso.kernel_arguments.edited(arguments))
    return iso.overlay.patched(patches, append)


def fitting(
    members: Mapping[str, bytes], length: int, pack: Callable[[Mapping[str, bytes], str], bytes] = cpio.archive
) -> bytes:
    """The archive, packed with gzip or, when only that fits, with xz; the smaller one when neither does."""
    packed = pack(members, "gzip")
    return packed if len(packed) <= length else min(packed, pack(members, "xz"), key=len)


def reset(iso: Iso) -> Overlay:
    """The image as it was published: nothing embedded, its own kernel arguments."""
    patches: list[tuple[int, Patch]] = [(iso.area.extent.offset, Zeros(iso.area.extent.length))]
    if iso.kernel_arguments:
        patches += iso.kernel_arguments.patches(iso.kernel_arguments.default)
    return iso.overlay.patched(patches)


def minimal(iso: Iso, rootfs_url: str) -> Iso:
    """The minimal image, which fetches its root file system from a URL; customise it like any other."""
    if not re.fullmatch(r"https?://[!-~]+", rootfs_url):
        raise ImageError(f"rootfs_url {without_login(rootfs_url)!r} is no http or https URL")
    small = of(minimal_overlay(iso.files))
    if small.kernel_arguments is None:
        raise ImageError(f"the minimal ISO of {iso.overlay.base.path} has no area for kernel arguments")
    words = [word for word in small.kernel_arguments.default.split() if not word.startswith(_LIVE)]
    default = " ".join([*words, _ROOTFS + rootfs_url])
    patches: list[tuple[int, Patch]] = list(small.kernel_arguments.patches(default))
    extent = small.files.find(kargs.INFO)
    if extent is not None:
        patches.append((extent.offset, _new_default(small, extent, " ".join(words))))
    return of(small.overlay.patched(patches))


def boot_file(iso: Iso, what: str) -> Overlay:
    """The kernel, the initramfs or the root file system out of the image."""
    for path in _BOOT[what]:
        extent = iso.files.find(path)
        if extent is not None:
            return Overlay(iso.overlay.base, iso.overlay.slice(extent.offset, extent.offset + extent.length))
    raise ImageError(f"base {iso.overlay.base.path} has no {what} ({', '.join(_BOOT[what])})")


def _filled(iso: Iso, archive: bytes) -> list[tuple[int, Patch]]:
    """The archive and zeros up to the end of the area; where the base has them already, they are taken from it."""
    offset, rest = iso.area.extent.offset, iso.area.extent.length - len(archive)
    return [(offset, archive)] + ([] if iso.blank else [(offset + len(archive), Zeros(rest))])


def _moved(iso: Iso, archive: bytes) -> tuple[list[tuple[int, Patch]], list[Patch]]:
    """A larger area at the end of the image, and directories that say so."""
    if iso.area.file is None:
        raise ImageError("the embed area of this image is a part of a boot file and cannot be made larger")
    if len(archive) > LARGEST_EMBED_AREA:
        raise ImageError(f"the Ignition has {len(archive)} bytes, {LARGEST_EMBED_AREA} is the most")
    start = iso.overlay.size + -iso.overlay.size % SECTOR
    length = len(archive) + -len(archive) % SECTOR
    patches: list[tuple[int, Patch]] = [(iso.area.extent.offset, Zeros(iso.area.extent.length))]
    for record in iso.files.records(iso.area.extent):
        patches.append((record + 2, _both(start // SECTOR)))
        patches.append((record + 10, _both(length)))
    blocks = (start + length) // SECTOR
    for place in range(SYSTEM_AREA, SYSTEM_AREA + 16 * SECTOR, SECTOR):
        descriptor = read(iso.overlay, place, 7)
        if descriptor[1:6] != b"CD001" or descriptor[0] == 255:
            break
        if descriptor[0] in (1, 2):
            patches.append((place + 80, _both(blocks)))
    if read(iso.overlay, SYSTEM_AREA - 24, 8) == b"coreiso+":
        patches.append((SYSTEM_AREA - 16, struct.pack("<QQ", start, length)))
    append: list[Patch] = [Zeros(start - iso.overlay.size), archive, Zeros(length - len(archive))]
    return patches, append


def _both(value: int) -> bytes:
    """A number in both byte orders, as ISO 9660 has them."""
    return struct.pack("<I", value) + struct.pack(">I", value)


def _new_default(small: Iso, extent: Extent, default: str) -> bytes:
    """kargs.json with another default, in the space it has."""
    info = json_value(read(small.overlay, extent.offset, extent.length))
    text = json.dumps({**info, "default": default}).encode("utf-8")
    if len(text) > extent.length:
        raise ImageError(f"{kargs.INFO} has {extent.length} bytes, and {len(text)} are needed")
    return text.ljust(extent.length)


def _members(area: bytes) -> Mapping[str, bytes]:
    """What is embedded; content that is no archive counts as foreign."""
    try:
        return cpio.contents(area)
    except ImageError as error:
        return {f"unreadable ({error})": b""}


def _features(files: IsoFiles) -> Mapping[str, Any]:
    text = files.read(FEATURES, SECTOR * 16)
    if text is None:
        return {}
    try:
        found = json_value(text)
    except ValueError as error:
        raise ImageError(f"{FEATURES} is not what it should be: {error}") from error
    return found if isinstance(found, dict) else {}


def profile_name(name: str) -> str:
    """A name that is a plain file name in the initramfs; what the converters of NMState give is one."""
    if not re.fullmatch(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@ -]{0,250}", name):
        raise ImageError(f"network profile {name!r} is no plain file name")
    return name


RECIPE = "/coreos/miniso.dat"
_RECIPE_MAGIC = b"MINISO\0\0"
_RECIPE_VERSION = 1
_RECIPE_LIMIT = 1024 * 1024
_MOST_ENTRIES = 10_000
_MOST_BYTES = 64 * 1024 * 1024  # of what the recipe itself unpacks to
_XZ_MEMORY = 256 * 1024 * 1024


class _RecipeReader:
    """bincode with variable-length integers, as far as the recipe uses it."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) != length:
            raise ImageError(f"{RECIPE} is cut off")
        self._at += length
        return found

    def number(self) -> int:
        first = self.take(1)[0]
        if first < 251:
            return first
        if first == 255:
            raise ImageError(f"{RECIPE} is damaged")
        return int.from_bytes(self.take({251: 2, 252: 4, 253: 8, 254: 16}[first]), "little")


def minimal_overlay(files: IsoFiles) -> Overlay:
    """The minimal ISO as an overlay of the full one; its bytes are proven against the digest in the recipe."""
    data = files.read(RECIPE, _RECIPE_LIMIT)
    if data is None or not data.startswith(_RECIPE_MAGIC):
        raise ImageError(f"{files.overlay.base.path} has no recipe for a minimal ISO ({RECIPE})")
    reader = _RecipeReader(data)
    reader.take(len(_RECIPE_MAGIC))
    version = reader.number()
    if version != _RECIPE_VERSION:
        raise ImageError(f"{RECIPE} is of version {version}; only {_RECIPE_VERSION} is known")
    reader.take(reader.number())  # who made it
    entries = []
    count = reader.number()
    if not 0 < count <= _MOST_ENTRIES:
        raise ImageError(f"{RECIPE} has {count} entries")
    for _index in range(count):
        there, here, length = reader.number(), reader.number(), reader.number()
        entries.append((there * SECTOR, here * SECTOR, length))
    digest = reader.take(32)
    rest = _unpacked(reader.take(reader.number()))
    found = Overlay(files.overlay.base, _segments(files.overlay, entries, rest))
    with open_overlay(found) as file:
        total = hashlib.sha256()
        for block in iter(lambda: file.read(1024 * 1024), b""):
            total.update(block)
    if total.digest() != digest:
        raise ImageError(
            f"the minimal ISO of {files.overlay.base.path} has another digest than its recipe says; the base was "
            "changed, use the published one"
        )
    return found


def _segments(full: Overlay, entries: list[tuple[int, int, int]], rest: bytes) -> list[Segment]:
    found: list[Segment] = []
    at = used = 0
    if sum(length for _there, _here, length in entries) + len(rest) > full.size:
        raise ImageError(f"{RECIPE} is damaged: its minimal image is larger than the full one")
    for there, here, length in entries:
        gap = there - at
        if gap < 0 or used + gap > len(rest):
            raise ImageError(f"{RECIPE} is damaged: its entries overlap or reach too far")
        if here + length > full.size:
            raise ImageError(f"{RECIPE} is damaged: it takes bytes from outside the image")
        found += [Bytes(rest[used : used + gap]), *full.slice(here, here + length)]
        used += gap
        at = there + length
    return [*found, Bytes(rest[used:])]


def _unpacked(data: bytes) -> bytes:
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
        found = unpacker.decompress(data, _MOST_BYTES + 1)
    except lzma.LZMAError as error:
        raise ImageError(f"{RECIPE} is damaged: {error}") from error
    if len(found) > _MOST_BYTES or not unpacker.eof:
        raise ImageError(f"{RECIPE} is cut off or larger than {_MOST_BYTES} bytes")
    return found
