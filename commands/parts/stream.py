# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams of bytes: read ahead, cut into blocks."""

from __future__ import annotations

import queue
import threading

from commands.parts.sizes import BLOCK


def ahead(chunks, depth: int = 4):
    """Read chunks in a thread, a few in advance, so that network, decompression and disk work at once."""
    line: queue.Queue = queue.Queue(depth)

    def fill() -> None:
        try:
            for chunk in chunks:
                line.put((chunk, None))
            line.put((b"", None))
        except BaseException as error:  # noqa: BLE001 - handed over to the main thread, which raises it
            line.put((b"", error))

    threading.Thread(target=fill, daemon=True).start()
    for chunk, error in iter(line.get, (b"", None)):
        if error:
            raise error
        yield chunk


def blocks(pieces, size: int = BLOCK):
    """Cut a stream into blocks of exactly `size` bytes; only the last may be shorter."""
    kept = bytearray()
    for piece in pieces:
        if not kept and len(piece) == size:
            yield piece
            continue
        kept += piece
        while len(kept) >= size:
            yield bytes(kept[:size])
            del kept[:size]
    if kept:
        yield bytes(kept)
