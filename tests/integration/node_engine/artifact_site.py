# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback, with bad answers on request."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.web_servers import Handler, Server


class Web:
    """``files`` are served with ranges; ``answers`` are asked first, in their order, one a request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.answers: list[Callable[[Handler], bool | None]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ranges = True
        self.port = 0
        self.stop = threading.Event()

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def ranges_asked(self) -> list[str]:
        """The Range header of each request; empty for none."""
        return [headers.get("Range", "") for _path, headers in self.requests]

    def answer(self, handler: Handler) -> None:
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


def cut(data: bytes, keep: int) -> Callable[[Handler], None]:
    """An answer whose connection ends after ``keep`` bytes."""

    def answer(handler: Handler) -> None:
        handler.head(200, {"Content-Length": str(len(data))})
        handler.wfile.write(data[:keep])
        handler.wfile.flush()
        handler.close_connection = True

    return answer


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    """An empty answer with this status."""

    def answer(handler: Handler) -> None:
        handler.reply(code, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


def trickle(stop: threading.Event) -> Callable[[Handler], None]:
    """An answer that never ends, a byte now and then."""

    def answer(handler: Handler) -> None:
        handler.head(200, {"Content-Length": "1000000"})
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

    class Request(Handler):
        def do_GET(self) -> None:
            web.answer(self)

    server = Server(Request, address, certificate=certificate)
    web.port = server.port
    try:
        yield web
    finally:
        web.stop.set()
        server.close()
