# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The question whether the kernel's clock is kept by somebody."""

from __future__ import annotations

import ctypes
import struct

#: systemd's own rule: an error of 16 s or more means that nobody keeps the clock.
_UNSYNCHRONIZED = 16000000
#: struct timex of a 64-bit Linux: modes, padding, offset, freq, maxerror; it is 208 bytes long.
_HEAD = struct.Struct("@I4xqqq")


def ntp_synchronized():
    """True or False by adjtimex(2); None when the kernel does not say, as in containers."""
    buffer = ctypes.create_string_buffer(512)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if ctypes.sizeof(ctypes.c_long) != 8 or libc.adjtimex(buffer) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return bool(_HEAD.unpack_from(buffer.raw)[3] < _UNSYNCHRONIZED)
