# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partition devices of a loop device, for kernels that were built without knowledge of partition tables.

Such a kernel still keeps partitions that somebody tells it about (BLKPG), so the lab reads the table and tells it.
On other kernels the table and the kernel already agree and nothing happens here.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import struct

from .loop import Loop
from .partition_table import NoTable, Partition, read

_BLKPG = 0x1269
_ADD, _DELETE, _RESIZE = 1, 2, 3


def agree(loop: Loop, size: int) -> None:
    """Make the kernel's partitions equal to the table on the disk; partitions in use that would change are left."""
    try:
        table = {part.number: part for part in read(loop.fd, size)}
    except NoTable:
        table = {}
    present = loop.geometry()
    for number in present.keys() - table.keys():
        _tell(loop, _DELETE, Partition(number, "", 0, 0))
    for number, part in table.items():
        known = present.get(number)
        if known == (part.start, part.size):
            continue
        if known and known[0] == part.start:
            _tell(loop, _RESIZE, part)
            continue
        if known:
            _tell(loop, _DELETE, part)
        _tell(loop, _ADD, part)


def _tell(loop: Loop, operation: int, part: Partition) -> None:
    details = ctypes.create_string_buffer(struct.pack("<qqi64s64s4x", part.start, part.size, part.number, b"", b""))
    request = struct.pack("<iiiiQ", operation, 0, len(details.raw), 0, ctypes.addressof(details))
    with contextlib.suppress(OSError):  # busy: as on any machine, the old partition stays until it is released
        fcntl.ioctl(loop.fd, _BLKPG, request)
