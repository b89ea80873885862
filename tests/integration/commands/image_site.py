# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server for images, with faults on request."""

import re
import socket
import threading
import time
from dataclasses import dataclass, field

from tests.web_servers import Handler, Server


@dataclass
class Site:
    """Files by path, faults by path (one is used up per request), and the requests that came."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[tuple]] = field(default_factory=dict)
    seen: list[tuple[str, dict]] = field(default_factory=list)
    ranges: bool = True
    tag: str = '"v1"'
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)


class Request(Handler):
    """Serves site.files with Range, If-Range and strong ETags, unless a fault says otherwise."""

    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self):
        site, path = self.site, self.path.split("?")[0]
        site.seen.append((self.path, dict(self.headers)))
        faults = site.faults.get(path, [])
        fault, *rest = faults.pop(0) if faults else ("none",)
        if fault == "status" or path not in site.files:
            self._answer(rest[0] if rest else 404, {}, b"")
        elif fault == "redirect":
            self._answer(302, {"Location": rest[0]}, b"")
        else:
            if fault == "tag":
                site.tag = rest[0]
            self._file(site.files[path], fault, rest)

    def _file(self, body: bytes, fault: str, rest: list) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted.group(1)) if wanted and self.site.ranges else 0
        if self.headers.get("If-Range", self.site.tag) != self.site.tag:
            start = 0
        headers = {"ETag": self.site.tag}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        if "unsized" in (fault, *rest):  # no length, the end of the connection is the end of the body
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(len(body) - start)
        part = body[start:]
        if fault == "slow":
            self.head(206 if start else 200, headers)
            for place in range(0, len(part), 65536):
                self.wfile.write(part[place : place + 65536])
                time.sleep(rest[0])
            self.close_connection = "unsized" in rest
            return
        if fault in ("cut", "stall"):
            part = part[: rest[0]]
        self._answer(206 if start else 200, headers, part)
        if fault == "stall":  # for ever
            self.site.over.wait()
        if fault in ("cut", "stall", "unsized"):
            self.close_connection = True

    def _answer(self, status: int, headers: dict, body: bytes) -> None:
        self.head(status, headers if "ETag" in headers else {**headers, "Content-Length": str(len(body))})
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True


class Web:
    """A running server; Web.site says what it serves."""

    def __init__(self, listener: socket.socket | None = None):
        self.site = Site()
        self.server = Server(type("Bound", (Request,), {"site": self.site}), listener=listener)
        self.site.url = self.server.url

    def close(self) -> None:
        self.site.over.set()
        self.server.close()
