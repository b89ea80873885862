# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a server beside a run that takes files.

A file appears under its name when it is whole, and each path takes one file at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from http.server import BaseHTTPRequestHandler

#: A sender that says nothing for so long (seconds) is gone.
_PATIENCE = 600
_LONGEST_LINE = 128
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n\Z")
_LARGEST_CHUNK = 16 << 20


class _Broken(Exception):
    """What came is not a whole file; ``status`` and text are the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def handler(files: dict[str, str]) -> type[BaseHTTPRequestHandler]:
    """A handler for ``files``: request path → where the file is to lie."""
    taken: set[str] = set()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        """PUT in chunks; everything else is refused."""

        protocol_version = "HTTP/1.1"
        timeout = _PATIENCE

        def do_PUT(self) -> None:
            """Take one file."""
            self.close_connection = True
            target = files.get(self.path)
            with lock:
                free = target is not None and target not in taken
                if free:
                    taken.add(str(target))
            try:
                if target is None or not free:
                    raise _Broken(404 if target is None else 409, "there is no such place" if not target else "taken")
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    raise _Broken(411, "send it in chunks")
                self._answer(201, _take(target, self.rfile))
            except _Broken as exc:
                self._answer(exc.status, str(exc))
            except OSError as exc:
                self._answer(507, f"it cannot be written: {exc.strerror}")
            finally:
                if free:
                    with lock:
                        taken.discard(str(target))

        def log_message(self, *_arguments: object) -> None:
            """Nobody reads it."""

        def _answer(self, status: int, text: str) -> None:
            content = text.encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(content)

    return Handler


def _take(target: str, stream) -> str:
    """Write the chunks of a request to a file that gets its name in the end; returns its SHA-256."""
    partial, digest = f"{target}.partial", hashlib.sha256()
    try:
        with open(partial, "wb") as file:
            while size := _chunk_size(stream):
                while size:
                    piece = stream.read(min(size, 1 << 20))
                    if not piece:
                        raise _Broken(400, "it was cut off")
                    size -= len(piece)
                    digest.update(piece)
                    file.write(piece)
                stream.readline(_LONGEST_LINE)
            stream.readline(_LONGEST_LINE)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise
    return digest.hexdigest()


def _chunk_size(stream) -> int:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise _Broken(400, "it was cut off")
    match = _CHUNK.match(line)
    if not match:
        raise _Broken(400, "it is not in chunks")
    size = int(match[1], 16)
    if size > _LARGEST_CHUNK:
        raise _Broken(400, "a chunk is too large")
    return size


def ended(files: dict[str, str]) -> None:
    """Remove what did not arrive whole."""
    for target in files.values():
        with contextlib.suppress(OSError):
            os.unlink(f"{target}.partial")
