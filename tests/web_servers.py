# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Web servers of tests, in threads of their own: quiet, at a port that the kernel gives, gone when they are closed."""

import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def certificate(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate for an IP address, signed by itself, and its key: the files cert.pem and key.pem of a folder."""
    files = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj=/CN=test", f"-addext=subjectAltName=IP:{address}", "-days=2"]
    subprocess.run([*command, f"-out={files[0]}", f"-keyout={files[1]}"], check=True, capture_output=True)
    return files


class Handler(BaseHTTPRequestHandler):
    """One request; prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def body(self) -> bytes:
        """What came with the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def head(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """The first lines of an answer."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """A whole answer; its length is the body's, unless a header says otherwise."""
        self.head(status, {"Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Answers from the beginning to ``close``, or to the end of its block; with certificate and key over TLS."""

    def __init__(
        self,
        handler: Callable[..., BaseHTTPRequestHandler],
        address: str = "127.0.0.1",
        listener: socket.socket | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        super().__init__((address, 0), handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener
            self.server_address = listener.getsockname()
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.host = "{}:{}".format(*self.server_address[:2])
        self.port = int(self.server_address[1])
        self.url = f"{'https' if certificate else 'http'}://{self.host}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        """Bind without asking the name service who we are."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the tests."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def __exit__(self, *_error: object) -> None:
        self.close()
