# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real registry on loopback, what is pushed to it, and a proxy in front of it that makes faults on request."""

import base64
import contextlib
import hashlib
import http.client
import json
import re
import socket
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from lab.cluster.control_plane import keep_port
from tests.waiting import until
from tests.web_servers import Handler, Server

LOGIN = "robot:geheim"
HTPASSWD = "robot:$2y$04$abcdefghijklmnopqrstuuPWRtT5yx7FBi4dcf6ROhboeNunUrLQ.\n"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EMPTY = "application/vnd.oci.empty.v1+json"


def sha256(data: bytes) -> str:
    """The digest of some bytes, as registries write it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry:
    """Debian's docker-registry, with the authentication that is asked for."""

    def __init__(self, home: Path, auth: dict):
        self._kept = keep_port()
        self.port = self._kept.getsockname()[1]
        self.headers: dict[str, str] = {}
        settings = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(home / "registry")}},
            "http": {"addr": f"127.0.0.1:{self.port}", "secret": "test"},
            "auth": auth,
        }
        config = home / "registry.yml"
        config.write_text(json.dumps(settings))
        self.process = subprocess.Popen(
            ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def listens() -> bool:
            assert self.process.poll() is None, "the registry has ended"
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 60).close()
                return True
            return False

        until(listens, "a registry that listens")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._kept.close()

    def send(self, method: str, path: str, data: bytes = b"", **headers: str) -> http.client.HTTPResponse:
        """One request of a client that may push."""
        url = path if path.startswith("http") else f"http://127.0.0.1:{self.port}{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(url, data or None, {**self.headers, **named}, method=method)
        return urllib.request.urlopen(request, timeout=180)

    def blob(self, name: str, data: bytes) -> dict:
        """Push a blob; return its descriptor."""
        place = self.send("POST", f"/v2/{name}/blobs/uploads/").headers["Location"]
        mark = "&" if "?" in place else "?"
        self.send("PUT", f"{place}{mark}digest={sha256(data)}", data, Content_Type="application/octet-stream")
        return {"mediaType": LAYER, "digest": sha256(data), "size": len(data)}

    def manifest(self, name: str, tag: str, content: dict) -> dict:
        """Push a manifest or an index; return its descriptor."""
        data = json.dumps({"schemaVersion": 2, **content}).encode()
        self.send("PUT", f"/v2/{name}/manifests/{tag or sha256(data)}", data, Content_Type=content["mediaType"])
        return {"mediaType": content["mediaType"], "digest": sha256(data), "size": len(data)}

    def image(self, name: str, tag: str, layers: list[bytes], architecture: str = "amd64") -> dict:
        """Push a container image."""
        config = json.dumps({"os": "linux", "architecture": architecture, "rootfs": {"type": "layers"}}).encode()
        content = {
            "mediaType": MANIFEST,
            "config": {**self.blob(name, config), "mediaType": CONFIG},
            "layers": [self.blob(name, layer) for layer in layers],
        }
        return self.manifest(name, tag, content)

    def artifact(self, name: str, tag: str, files: dict[str, bytes]) -> dict:
        """Push files, as ORAS does."""
        layers = []
        for title, data in files.items():
            layers.append({**self.blob(name, data), "annotations": {"org.opencontainers.image.title": title}})
        config = {**self.blob(name, b"{}"), "mediaType": EMPTY}
        return self.manifest(name, tag, {"mediaType": MANIFEST, "config": config, "layers": layers})

    def index(self, name: str, tag: str, manifests: dict[str, dict]) -> dict:
        """Push an index of manifests by architecture."""
        entries = [{**one, "platform": {"os": "linux", "architecture": arch}} for arch, one in manifests.items()]
        return self.manifest(name, tag, {"mediaType": INDEX, "manifests": entries})


@dataclass
class Proxy:
    """The requests it got, and its faults: (pattern of a path, kind of fault, …), each for one allowed request."""

    backend: int
    seen: list[tuple[str, dict]] = field(default_factory=list)
    faults: list[tuple] = field(default_factory=list)

    def ranges(self) -> list[str]:
        """The ranges that were asked for."""
        return [headers["Range"] for _path, headers in self.seen if "Range" in headers]


class Request(Handler):
    """Passes a request on, unless a fault says otherwise."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def do_GET(self):
        proxy = self.proxy
        proxy.seen.append((self.path, dict(self.headers)))
        connection = http.client.HTTPConnection("127.0.0.1", proxy.backend, timeout=180)
        connection.request("GET", self.path, headers=dict(self.headers))
        answer = connection.getresponse()
        body, headers = answer.read(), dict(answer.getheaders())
        connection.close()
        fault = next((one for one in proxy.faults if re.search(one[0], self.path)), None)
        if fault and answer.status != 401:  # a login comes before
            proxy.faults.remove(fault)
        _pattern, what, *rest = fault if fault and answer.status != 401 else ("", "none")
        if what == "answer":
            return self._send(rest[0], rest[1], b"")
        length = len(body)
        if what == "flip":
            body = body[: rest[0]] + bytes([body[rest[0]] ^ 1]) + body[rest[0] + 1 :]
        elif what == "cut":
            body = body[: rest[0]]
        elif what == "short":
            body = body[: rest[0]]
            length = len(body)
        self.close_connection = what == "cut"
        for name in ("Content-Length", "Transfer-Encoding", "Connection", "Date"):
            headers.pop(name, None)
        return self._send(answer.status, headers, body, length)

    def _send(self, status: int, headers: dict, body: bytes, length: int = 0) -> None:
        self.head(status, {**headers, "Content-Length": str(length)})
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True


class Front:
    """The proxy as a running HTTP server."""

    def __init__(self, registry: Registry, listener: socket.socket | None = None):
        self.proxy = Proxy(registry.port)
        server = Server(type("Bound", (Request,), {"proxy": self.proxy}), listener=listener)
        self.host, self.close = server.host, server.close


def with_password(home: Path) -> Registry:
    """A registry that wants a user and a password."""
    (home / "htpasswd").write_text(HTPASSWD)
    registry = Registry(home, {"htpasswd": {"realm": "test", "path": str(home / "htpasswd")}})
    registry.headers["Authorization"] = "Basic " + base64.b64encode(LOGIN.encode()).decode()
    return registry
