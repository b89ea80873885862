# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decompresses a stream; nothing cut or damaged passes as whole."""

from __future__ import annotations

import bz2
import contextlib
import fcntl
import lzma
import re
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands.parts.errors import Refused
from commands.parts.sizes import BLOCK, MIB
from commands.parts.stream import ahead


def memory_limit() -> int:
    """Half of the memory that is free: what a decompressor may take."""
    found = re.search(r"MemAvailable:\s+([0-9]+) kB", Path("/proc/meminfo").read_text())
    return max(int(found.group(1)) * 512 if found else 0, 64 * MIB)


class Gunzip:
    """One gzip member, with the interface of the bz2 and lzma decompressors."""

    def __init__(self):
        self.inner = zlib.decompressobj(31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""
        return self.inner.eof

    @property
    def unused_data(self) -> bytes:
        """What came behind the member."""
        return self.inner.unused_data

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return at most limit bytes; call again with b"" while needs_input is false."""
        out = self.inner.decompress(self.inner.unconsumed_tail + data, limit)
        self.needs_input = len(out) < limit and not self.inner.unconsumed_tail
        return out


DECODERS: dict[str, Callable[[], Any]] = {
    "gz": Gunzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=memory_limit()),
}


def inflate(chunks, name: str):
    """Decompress gz, bz2 or xz, of one or several members; a stream that stops in a member is refused."""
    decoder, members = None, 0
    for chunk in chunks:
        data = chunk
        while data or (decoder is not None and not decoder.needs_input):
            if decoder is None:
                data = data.lstrip(b"\0") if members else data  # padding between members is legal
                if not data:
                    break
                decoder = DECODERS[name]()
            try:
                out = decoder.decompress(data, BLOCK)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise Refused("image: the %s stream is damaged: %s" % (name, error)) from None
            data = b""
            if out:
                yield out
            if decoder.eof:
                data, decoder, members = decoder.unused_data, None, members + 1
    if decoder is not None or not members:
        raise Refused("image: the %s stream is truncated" % name)


def unzstd(chunks, memory: int = 0):
    """Decompress with the zstd program; both ends of it and its exit code are watched."""
    limit = "-M%dMiB" % min(max((memory or memory_limit()) // MIB, 128), 2048)  # 2 GiB is the largest window there is
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                ["zstd", "-dcq", limit],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        except FileNotFoundError:
            raise Refused("image: it is compressed with zstd, and zstd is missing in this rescue") from None
        assert process.stdout is not None
        output = process.stdout
        failure: list = []
        feeder = threading.Thread(target=_feed, args=(chunks, process.stdin, failure), daemon=True)
        try:
            with contextlib.suppress(OSError):  # a wider pipe means fewer context switches; not everyone may have it
                fcntl.fcntl(output.fileno(), 1031, MIB)
            feeder.start()
            yield from iter(lambda: output.read(BLOCK), b"")
            status = process.wait()
            feeder.join()
            if failure:
                raise failure[0]
            if status:
                complaints.seek(0)
                text = complaints.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                raise Refused("image: the zstd stream is damaged or truncated: %s" % "".join(text))
        finally:
            process.kill()
            process.wait()
            output.close()


def _feed(chunks, pipe, failure: list) -> None:
    try:
        for chunk in chunks:
            pipe.write(chunk)
        pipe.flush()
    except BrokenPipeError:
        pass  # the exit code of the reader tells why
    except BaseException as error:  # noqa: BLE001 - handed over to the main thread, which raises it
        failure.append(error)
    finally:
        with contextlib.suppress(OSError):
            pipe.close()


def decompress(chunks, name: str):
    """Decompress a stream of the named compression."""
    if name == "zst":
        return unzstd(chunks)
    return ahead(chunks) if name == "none" else inflate(ahead(chunks), name)
