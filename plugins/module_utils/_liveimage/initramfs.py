# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""An initramfs with an Ignition behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import cpio
from .base_file import identify
from .iso import IGNITION, NETWORK, profile_name
from .overlay import Overlay, Patch, Zeros, whole


def inspect(path: str) -> Overlay:
    """A base initramfs (a file or a block device)."""
    return whole(identify(path))


def customise(
    base: Overlay,
    ignition: bytes | None,
    network: Mapping[str, str] | None = None,
    *,
    pack: Callable[[Mapping[str, bytes], str], bytes] = cpio.archive,
) -> Overlay:
    """The initramfs followed by an archive; both begin and end at multiples of 4, so that a plain one may follow."""
    members: dict[str, bytes] = {} if ignition is None else {IGNITION: ignition}
    for name, text in (network or {}).items():
        members[f"{NETWORK}/{profile_name(name)}"] = text.encode("utf-8")
    if not members:
        return base
    archive = pack(members, "gzip")
    append: list[Patch] = [Zeros(cpio.aligned(base.size)), archive, Zeros(cpio.aligned(len(archive)))]
    return base.patched([], append)
