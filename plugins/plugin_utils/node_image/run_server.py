# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback beside a run of Ansible: it sends image files to machines, or takes files from them.

Machines reach it through a tunnel of their SSH connection. It runs in a process of its own, which gets its orders on
stdin and ends with the run, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any

#: Seconds between two looks whether the run is still there.
_LOOK_EVERY = 1.0
_RANGE = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})\Z")
#: Bytes that are sent or written at once.
_PIECE = 1 << 20
#: A sender that says nothing for so long (seconds) is gone.
_PATIENCE = 600
_LONGEST_LINE = 128
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?\r?\n\Z")
_LARGEST_CHUNK = 16 << 20


def start(kind: str, files: dict[str, Any]) -> int:
    """Start a server for the run that this worker belongs to; returns its port.

    ``kind``: ``source`` sends files, ``sink`` takes them; ``files``: see :func:`source_handler` and
    :func:`sink_handler`. Raises OSError when the server does not start.
    """
    # a worker ends with its task; the run is its parent
    run = pid_of_run()
    order = json.dumps({"pid": run, "start": start_of(run), "files": files})
    process = subprocess.Popen(
        [sys.executable, __file__, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None:
        raise OSError("the server beside this run has no pipes")
    with process.stdin as stdin:
        stdin.write(order.encode())
    with process.stdout as stdout:
        port = stdout.readline().strip()
    if not re.fullmatch(rb"[0-9]{1,5}", port):
        raise OSError(f"the server beside this run did not start (exit code {process.wait(timeout=10)})")
    return int(port)


def pid_of_run() -> int:
    """The main process of the run that this worker belongs to; it may have been killed, and have left us to another."""
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


def start_of(pid: int) -> str:
    """When a process began, in ticks since boot; empty when there is none. With the pid it names one process only."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "running"
    return "" if fields[0] == "Z" else fields[19]


def main() -> int:
    """Serve until the process of the order is gone; the port is printed on stdout."""
    handlers: dict[str, Callable[[dict[str, Any]], type[BaseHTTPRequestHandler]]]
    handlers = {"source": source_handler, "sink": sink_handler}
    order = json.load(sys.stdin)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handlers[sys.argv[1]](order["files"]))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdout.close()
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    while start_of(order["pid"]) == order["start"]:
        time.sleep(_LOOK_EVERY)
    if sys.argv[1] == "sink":
        remove_partial(order["files"])
    return 0


# --- sending


def source_handler(files: Mapping[str, Mapping[str, str]]) -> type[BaseHTTPRequestHandler]:
    """A handler that sends ``files``: request path → ``{file, digest}``, a path here and the digest of its bytes."""

    class Source(BaseHTTPRequestHandler):
        """GET and HEAD, whole or from a byte on; everything else is refused."""

        protocol_version = "HTTP/1.1"
        timeout = 300

        def do_GET(self) -> None:
            self._answer(send=True)

        def do_HEAD(self) -> None:
            """Send what would come."""
            self._answer(send=False)

        def log_message(self, *_arguments: object) -> None:
            """Write no log."""

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

        def _send(self, file: BufferedIOBase, left: int) -> None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while left and (piece := file.read(min(_PIECE, left))):
                    self.wfile.write(piece)
                    left -= len(piece)

    return Source


# --- taking


class _Broken(Exception):
    """What came is not a whole file; ``status`` and text are the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def sink_handler(files: Mapping[str, str]) -> type[BaseHTTPRequestHandler]:
    """A handler that takes ``files``: request path → where the file is to lie.

    A file appears under its name when it is whole, and each path takes one file at a time.
    """
    taken: set[str] = set()
    lock = threading.Lock()

    class Sink(BaseHTTPRequestHandler):
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
            """Write no log."""

        def _answer(self, status: int, text: str) -> None:
            content = text.encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(content)

    return Sink


def _take(target: str, stream: BufferedIOBase) -> str:
    """Write the chunks of a request to a file that gets its name in the end; returns its SHA-256."""
    partial, digest = f"{target}.partial", hashlib.sha256()
    try:
        with open(partial, "wb") as file:
            while size := _chunk_size(stream):
                while size:
                    piece = stream.read(min(size, _PIECE))
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


def _chunk_size(stream: BufferedIOBase) -> int:
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


def remove_partial(files: Mapping[str, str]) -> None:
    """Remove what did not arrive whole."""
    for target in files.values():
        with contextlib.suppress(OSError):
            os.unlink(f"{target}.partial")


if __name__ == "__main__":
    sys.exit(main())
