# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What systemd wants to know of a service."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping


def notify(environ: Mapping[str, str], text: str) -> None:
    """Tell whoever started the program; nothing when nobody wants to know."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        client.connect(address)
        client.sendall(text.encode("utf-8"))


def watchdog(environ: Mapping[str, str], pid: int) -> float:
    """Seconds between two signs of life; 0: none are wanted."""
    wanted = environ.get("WATCHDOG_USEC", "")
    if not re.fullmatch(r"[0-9]{1,18}", wanted) or environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return 0.0
    return int(wanted) / 1e6 / 3
