# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback that plays a script: what it answers, and whether it answers at all."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from urllib.parse import parse_qs

from tests.web_servers import Handler, Server


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
        self._server = Server(self._handler())

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._closing.set()
        self._server.close()

    @property
    def endpoint(self):
        """Where it listens."""
        return f"{self._server.url}/v1"

    def _next(self, method, path, headers, body):
        with self._lock:
            self.requests.append((method, path, headers, body))
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    def _handler(self):
        server = self

        class Script(Handler):
            protocol_version = "HTTP/1.1"

            def _play(self):
                data = self.body()
                is_form = "urlencoded" in self.headers.get("Content-Type", "")
                body = parse_qs(data.decode()) if is_form else json.loads(data) if data else None
                reply = server._next(self.command, self.path, dict(self.headers), body)
                if reply.hang:
                    server._closing.wait()
                if reply.drop or reply.hang:
                    self.close_connection = True
                    return
                data = (reply.text if reply.text is not None else json.dumps(reply.body or {})).encode()
                if reply.status == HTTPStatus.NO_CONTENT:
                    data = b""  # else it would begin the next answer of this connection
                self.reply(reply.status, data, reply.headers)

            do_GET = do_POST = do_PUT = do_DELETE = _play

        return Script
