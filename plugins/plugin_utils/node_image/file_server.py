# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a server beside a run that sends files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

_RANGE = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})\Z")
_PIECE = 1 << 20


def handler(files: Mapping[str, Mapping[str, str]]) -> type[BaseHTTPRequestHandler]:
    """A handler for ``files``: request path → ``{file, digest}``, the path of the file and what it holds."""

    class Handler(BaseHTTPRequestHandler):
        """GET and HEAD, whole or from a byte on; everything else is refused."""

        protocol_version = "HTTP/1.1"
        timeout = 300

        def do_GET(self) -> None:
            """Send a file."""
            self._answer(send=True)

        def do_HEAD(self) -> None:
            """Send what would come."""
            self._answer(send=False)

        def log_message(self, *_arguments: object) -> None:
            """Nobody reads it."""

        def _answer(self, send: bool) -> None:
            found = files.get(self.path.partition("?")[0])
            if found is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            digest = found["digest"]
            with open(found["file"], "rb") as file:
                size = os.fstat(file.fileno()).st_size
                first, last = self._wanted(size, f'"{digest}"')
                if first >= size > 0:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{size}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                whole = (first, last) == (0, size - 1)
                self.send_response(200 if whole else 206)
                self.send_header("ETag", f'"{digest}"')
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Content-Length", str(last - first + 1))
                if not whole:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.end_headers()
                if send:
                    file.seek(first)
                    self._send(file, last - first + 1)

        def _wanted(self, size: int, tag: str) -> tuple[int, int]:
            """First and last byte that are asked for."""
            match = _RANGE.match(self.headers.get("Range") or "")
            if match is None or self.headers.get("If-Range", tag) != tag:
                return 0, size - 1
            first = int(match[1])
            last = int(match[2]) if match[2] else max(first, size - 1)
            return (first, min(last, size - 1)) if last >= first else (0, size - 1)

        def _send(self, file, left: int) -> None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while left and (piece := file.read(min(_PIECE, left))):
                    self.wfile.write(piece)
                    left -= len(piece)

    return Handler


def ended(_files: Mapping[str, Mapping[str, str]]) -> None:
    """Nothing is left behind."""
