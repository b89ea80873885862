# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What an image has embedded: of an ISO, an initramfs or a descriptor."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import cpio, iso, kargs, miniso
from ..base import glance, identify
from ..errors import ImageError
from ..isofs import SYSTEM_AREA
from ..overlay import Bytes, Overlay, whole
from ..reading import read
from . import descriptors, masking

_TAIL = 64 * 1024 * 1024  # where an Ignition behind an initramfs is looked for
_ARCHIVE = re.compile(b"\x1f\x8b\x08|\xfd7zXZ\x00|07070[12]")
_TRIES = 64
_RESOURCE = 2 * 1024 * 1024  # of one attempt: more is the initramfs itself


@dataclass(frozen=True)
class Look:
    """An image as somebody would want to know it; ``members`` are what the first root file system gets on top."""

    kind: str
    size: int
    etag: str
    members: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    iso: iso.Iso | None = None

    @property
    def customised(self) -> bool:
        """Whether somebody put something in."""
        return self.iso.customised if self.iso is not None else bool(self.members)

    @property
    def arguments(self) -> kargs.KernelArguments | None:
        """The kernel arguments of an ISO that has areas for them."""
        return None if self.iso is None else self.iso.kernel_arguments


def at(path: str, *, digest: bool = True) -> Look:
    """The image in a file, or the one a descriptor describes; ``digest``: its tag is asked for, too."""
    if path.endswith(descriptors.SUFFIX):
        data = descriptors.read(path)
        if data is None:
            raise ImageError("image %s is not there" % path)
        overlay = descriptors.overlay_of(data)
        if not overlay.base.unchanged():
            raise ImageError("image %s: its base %s is gone or was changed" % (path, overlay.base.path))
        return of(overlay)
    if not os.path.lexists(path):
        raise ImageError("image %s is not there" % path)
    return of(whole(identify(path) if digest else glance(path)))


def of(overlay: Overlay) -> Look:
    """The image an overlay describes."""
    tag = overlay.etag() if overlay.base.identity else ""
    if read(overlay, SYSTEM_AREA, 6) == b"\x01CD001":
        found = iso.of(overlay)
        return Look("iso", overlay.size, tag, found.embedded, found)
    members = behind(overlay)
    return Look("initramfs" if members else "other", overlay.size, tag, members)


def behind(overlay: Overlay) -> Mapping[str, bytes]:
    """The members of the archive that ends an initramfs, when it is one of an Ignition or of network profiles."""
    for segment in overlay.segments[-2:]:
        if isinstance(segment, Bytes):
            found = _members(segment.data)
            if found:
                return found
    start = max(0, overlay.size - _TAIL)
    tail = read(overlay, start, overlay.size - start)
    places = [match.start() for match in _ARCHIVE.finditer(tail) if not (start + match.start()) % 4]
    for place in places[: -_TRIES - 1 : -1]:
        found = _members(tail[place:])
        if found:
            return found
    return {}


def told(look: Look) -> dict[str, Any]:
    """For people and tasks: everything but secrets."""
    found: dict[str, Any] = {
        "kind": look.kind,
        "size": look.size,
        "etag": look.etag,
        "customised": look.customised,
        "members": sorted(look.members),
        "ignition": None,
        "ignition_bytes": len(look.members.get(iso.IGNITION, b"")),
        "network": {},
        "initramfs_network": masking.profiles(look.members),
    }
    if iso.IGNITION in look.members:
        found["ignition"] = masking.ignition_shown(look.members[iso.IGNITION])
        found["network"] = masking.own_profiles(look.members[iso.IGNITION])
    if look.iso is not None:
        area = look.iso.area
        found["area"] = {"offset": area.extent.offset, "length": area.extent.length, "source": area.source}
        found["volume_id"] = look.iso.files.volume_id
        found["features"] = dict(look.iso.features)
        found["has_minimal"] = look.iso.files.find(miniso.DATA) is not None
    if look.arguments is not None:
        found["kernel_arguments"] = {
            "current": look.arguments.current, "default": look.arguments.default, "limit": look.arguments.limit,
        }  # fmt: skip
    return found


def texts(look: Look) -> dict[str, str]:
    """For a diff: what is embedded, and the kernel arguments."""
    found = {"": masking.text_of(look.members)}
    if look.arguments is not None:
        found["kernel arguments"] = "".join("%s\n" % word for word in look.arguments.current.split())
    return found


def _members(data: bytes) -> Mapping[str, bytes]:
    """The members of an archive up to the end of the data; nothing when it is another archive."""
    if len(data) > _RESOURCE and data[:2] != b"\x1f\x8b" and data[:1] != b"\xfd":
        return {}
    try:
        found = {member.name: member.data for member in cpio.members(data) if member.mode & 0o170000 != 0o040000}
    except ImageError:
        return {}
    ours = iso.IGNITION in found or any(name.startswith(iso.NETWORK + "/") for name in found)
    return found if ours else {}
