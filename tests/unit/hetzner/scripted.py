# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback that plays a script: what it answers, and whether it answers at all."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class Reply:
    """One answer of the script."""

    def __init__(self, status=200, body=None, headers=None, drop=False, hang=False, text=None):
        self.status = status
        self.body = body
        self.headers = headers or {}
        self.drop = drop
        self.hang = hang
        self.text = text


def failure(status, code, **more):
    """An answer in the API's error envelope."""
    return Reply(status, {"error": {"code": code, "message": "said the script", "details": None}}, **more)


class ScriptedServer:
    """``with ScriptedServer(reply, reply, …) as server``: the last reply repeats; ``requests`` lists what came."""

    def __init__(self, *replies):
        self._replies = list(replies)
        self._lock = threading.Lock()
        self.requests = []
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self):
        """Where it listens."""
        return "http://127.0.0.1:%d/v1" % self._server.server_address[1]

    def _next(self, method, path, headers, body):
        with self._lock:
            self.requests.append((method, path, headers, body))
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    def _handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _play(self):
                length = int(self.headers.get("Content-Length") or 0)
                data = self.rfile.read(length)
                is_form = "urlencoded" in self.headers.get("Content-Type", "")
                body = parse_qs(data.decode()) if is_form else json.loads(data) if data else None
                reply = server._next(self.command, self.path, dict(self.headers), body)
                if reply.hang:
                    server._closing.wait()
                if reply.drop or reply.hang:
                    self.close_connection = True
                    return
                data = (reply.text if reply.text is not None else json.dumps(reply.body or {})).encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _play

            def log_message(self, *_arguments):
                """Stay quiet."""

        return Handler
