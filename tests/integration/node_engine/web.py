# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback, with bad answers on request."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Web:
    """``files`` are served with ranges; ``answers`` are asked first, in their order, one a request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.answers: list[Callable[[BaseHTTPRequestHandler], bool | None]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ranges = True
        self.port = 0
        self.stop = threading.Event()

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        """Where a path is served."""
        return f"{scheme}://{host}:{self.port}{path}"

    def ranges_asked(self) -> list[str]:
        """The Range header of each request; empty for none."""
        return [headers.get("Range", "") for _path, headers in self.requests]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One request."""
        self.requests.append((handler.path, dict(handler.headers)))
        if self.answers and self.answers.pop(0)(handler) is not False:
            return
        data = self.files.get(handler.path)
        if data is None:
            handler.send_error(404)
            return
        begin = 0
        asked = handler.headers.get("Range")
        if asked and self.ranges:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(data):
                handler.send_error(416)
                return
        handler.send_response(206 if asked and self.ranges else 200)
        if asked and self.ranges:
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - begin))
        handler.end_headers()
        handler.wfile.write(data[begin:])


def cut(data: bytes, keep: int) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer whose connection ends after ``keep`` bytes."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:keep])
        handler.wfile.flush()
        handler.close_connection = True

    return answer


def status(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An empty answer with this status."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def trickle(stop: threading.Event) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer that never ends, a byte now and then."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            while not stop.wait(0.05):
                handler.wfile.write(b"x")
        except OSError:
            return

    return answer


@contextmanager
def serving(certificate: tuple[Path, Path] | None = None, address: str = "127.0.0.1") -> Iterator[Web]:
    """A server until the end of the block; with a certificate and its key, over TLS."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def server_bind(self) -> None:
            """Bind without asking the name service who we are."""
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = self.server_address[:2]

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is no news."""

    server = Server((address, 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()
