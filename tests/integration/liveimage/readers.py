# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers that check every byte, and what they have to find: images made by the library, not by the server."""

import random
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import hosts, iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import from_environment
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import read
from tests.integration.liveimage.program import ENVIRONMENT
from tests.unit.liveimage import maker

MIB = 1024 * 1024
KINDS = ("small", "small", "small", "large", "suffix", "several", "if-range", "stale", "match")
_PART = re.compile(rb"\r\nContent-Range: bytes (\d+)-(\d+)/(\d+)\r\n")


def base(folder: Path, mib: int) -> Path:
    """A folder with live.iso and live.img: laid out like CoreOS's, the ISO of this size."""
    path = maker.make(folder / "live.iso", maker.Layout(miniso=False))
    with path.open("ab") as file:
        file.write(random.Random(1).randbytes(mib * MIB - path.stat().st_size))
    (folder / "live.img").write_bytes(random.Random(2).randbytes(MIB + 1))
    return folder


def network(number: int, change: int = 0) -> str:
    """A host's NMState document; another one for each change."""
    address = f"192.0.2.{number + 1}"
    return f"""\
interfaces:
  - name: eno{change + 1}
    type: ethernet
    state: up
    ipv4: {{enabled: true, dhcp: false, address: [{{ip: {address}, prefix-length: 24}}]}}
"""


def expected(bases: Path, name: str, document: str) -> tuple[str, bytes]:
    """Entity tag and bytes of a host's image."""
    wishes = hosts.HostInputs(name, network=document)
    made = hosts.build(from_environment(ENVIRONMENT, lambda _path: None), wishes)
    overlay = hosts.iso_overlay(iso.inspect(str(bases / "live.iso")), made, wishes)
    return f'"{overlay.etag()}"', read(overlay, 0, overlay.size)


class Reader:
    """One connection that asks for random pieces of images; ``wrong`` is what it should not have got."""

    def __init__(
        self, port: int, known: Mapping[str, Mapping[str, bytes]], seed: int, gone: Sequence[int] = ()
    ) -> None:
        """``known``: path → entity tag → bytes; ``gone``: statuses that are right for an image that comes and goes."""
        self._port, self._known, self._gone = port, known, gone
        self._chance = random.Random(seed)
        self._socket: socket.socket | None = None
        self._tags: dict[str, str] = {}  # the last one seen
        self.wrong: list[str] = []
        self.statuses: dict[int, int] = {}
        self.bytes = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def turn(self) -> None:
        """One request and its check."""
        path = self._chance.choice(sorted(self._known))
        size = len(next(iter(self._known[path].values())))
        kind = self._chance.choice(KINDS)
        if self._chance.random() < 0.002:
            kind = "whole"
        first = self._chance.randrange(size)
        length = self._chance.choice([1, 512, 2048, 4096, 65536]) if kind != "large" else self._chance.randrange(MIB)
        last = min(size - 1, first + length)
        lines = {"Range": f"bytes={first}-{last}"}
        if kind == "suffix":
            lines["Range"] = f"bytes=-{length}"
        elif kind == "several":
            other = self._chance.randrange(size - 1000)
            lines["Range"] = f"bytes={first}-{last},{other}-{other + 999}, -7"
        elif kind == "if-range":
            lines["If-Range"] = self._tags.get(path, '"none"')
        elif kind == "match":
            lines["If-Match"] = self._tags.get(path, "*")
        elif kind in ("stale", "whole"):  # a reader of another state gets the whole image: ask for its head only
            lines = {"Range": lines["Range"], "If-Range": '"other"'} if kind == "stale" else {}
        try:
            self._ask("HEAD" if kind == "stale" else "GET", path, lines)
        except OSError as error:
            self.wrong.append(f"{path} {lines}: {error!r}")
            self.close()
            self._socket = None

    def _ask(self, method: str, path: str, lines: Mapping[str, str]) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 180)
        reported = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: storm\r\n{reported}\r\n".encode())
        head, body = self._answer(method)
        status = int(head.split(None, 2)[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.bytes += len(body)
        problem = self._problem(method, path, lines, status, head, body)
        if problem:
            self.wrong.append(f"{method} {path} {lines}: {problem}: {head[:300]!r}")

    def _answer(self, method: str) -> tuple[bytes, bytes]:
        found = bytearray()
        while (end := found.find(b"\r\n\r\n")) < 0:
            self._more(found, 65536)
        head = bytes(found[: end + 2])
        length = re.search(rb"\r\nContent-Length: (\d+)\r\n", head)
        del found[: end + 4]
        wanted = int(length[1]) if length and method != "HEAD" else 0
        while len(found) < wanted:
            self._more(found, wanted - len(found))
        return head, bytes(found)

    def _more(self, found: bytearray, most: int) -> None:
        part = self._socket.recv(min(most, MIB)) if self._socket else b""
        if not part:
            raise ConnectionError(f"the answer was cut after {len(found)} bytes")
        found += part

    def _problem(
        self, method: str, path: str, lines: Mapping[str, str], status: int, head: bytes, body: bytes
    ) -> str:  # fmt: skip
        """Why this answer is wrong, or nothing: its tag says of which state of the image its bytes have to be."""
        if status in self._gone or (status == 412 and lines.get("If-Match") not in (None, "*")):
            return ""
        if status not in (200, 206):
            return "status"
        tag = re.search(rb'\r\nETag: ("[^"]+")\r\n', head)
        image = self._known[path].get(tag[1].decode()) if tag else None
        if image is None or tag is None:
            return "no state of this image"
        self._tags[path] = tag[1].decode()
        sent = lines.get("If-Range")
        if status != (206 if "Range" in lines and sent in (None, tag[1].decode()) else 200):
            return "whole or part"
        if "If-Match" in lines and lines["If-Match"] not in ("*", tag[1].decode()):
            return "another state than asked for"
        if method == "HEAD":
            return ""
        if status == 200:
            return "" if body == image else "bytes"
        boundary = re.search(rb"boundary=(\S+)\r\n", head)
        pieces = body.split(b"\r\n--" + boundary[1])[1:-1] if boundary else [head[:-2] + b"\r\n\r\n" + body]
        for piece in pieces:
            top, _blank, content = piece.partition(b"\r\n\r\n")
            place = _PART.search(top + b"\r\n")
            if not place or content != image[int(place[1]) : int(place[2]) + 1]:
                return "bytes of a part"
        wanted = lines["Range"].partition("=")[2].split(",")
        return "" if len(pieces) == len(wanted) else "number of parts"
