# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""TCP ports for programs that need one as an option: reserved, so that no other program gets the same."""

from __future__ import annotations

import socket


def keep(host: str = "127.0.0.1") -> socket.socket:
    """A socket that keeps a free port until it is closed, and never listens there.

    A server that sets SO_REUSEADDR, as nearly all do, may listen on the port meanwhile, again and again; the kernel
    does not give it to others. While no server listens, connections are refused.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        keeper.bind((host, 0))
        # Only now: before, the kernel could have chosen the port of another keeper.
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        keeper.close()
        raise
    return keeper
