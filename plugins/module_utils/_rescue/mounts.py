# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A mount namespace of one's own."""

from __future__ import annotations

import ctypes

_CLONE_NEWNS = 0x00020000
_MS_REC_SLAVE = 0x84000


def private_mounts() -> None:
    """Leave the mount namespace: no mount of this process is seen outside, or holds what others unmount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) == 0:
        libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_SLAVE), None)
