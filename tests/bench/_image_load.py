# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of the image benchmark: wrk for small ranges, a socket that throws bytes away for whole images."""

import os
import re
import socket
import ssl
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bench._image_peers import Server

SCRIPT = Path(__file__).with_name("ranges.lua")
_BUFFER = 4 * 1024 * 1024


@dataclass(frozen=True)
class Ranges:
    """What one run of wrk saw, and what it cost the server."""

    per_second: float
    cpu: float  # microseconds of the server per request


def ranges(
    server: Server, connections: int, size: int, images: int, *, varied: bool = False, seconds: int = 2
) -> Ranges:
    """4 KiB ranges at random places over so many connections; any answer but 206 ends the run.

    Of a server that breaks answers off they are only counted.
    ``varied``: every head has another image, other fields and another order; else only the digits change.
    """
    before = server.cpu()
    command = ["wrk", f"-t{min(connections, images)}", f"-c{connections}", f"-d{seconds}s",
               "-s", str(SCRIPT), f"http://127.0.0.1:{server.port}/"]  # fmt: skip
    environment = {**os.environ, "SIZE": str(size), "IMAGES": str(images), "VARIED": "1" if varied else ""}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    used = server.cpu() - before
    count = re.search(r"(\d+) requests in ([\d.]+)s", output)
    errors = re.findall(r"Socket errors: .*|Non-2xx .*", output)
    if not count or (errors and not server.breaks):
        raise SystemExit(f"wrk: {output}")
    if errors:
        print(f"of {count[1]} answers over {connections} connection(s): {'; '.join(errors)}", flush=True)
    return Ranges(int(count[1]) / float(count[2]), used / int(count[1]) * 1e6)


def fetch(server: Server, path: str, into: Path | None = None) -> int:
    """Read a whole image over a connection of its own, into a file or nowhere; returns its size."""
    with _connected(server) as client:
        client.sendall(b"GET %s HTTP/1.1\r\nHost: bench\r\n\r\n" % path.encode())
        head, rest = b"", b""
        while b"\r\n\r\n" not in head:
            part = client.recv(65536)
            if not part:
                raise SystemExit(f"{path}: no answer")
            head += part
        head, _blank, rest = head.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if not head.startswith(b"HTTP/1.1 200 ") or not length:
            raise SystemExit(f"{path}: {head!r}")
        return _drain(client, rest, int(length[1]), into)


def _connected(server: Server) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), 30)
    if not server.tls:
        return client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(client)


def _drain(client: socket.socket, rest: bytes, size: int, into: Path | None) -> int:
    done, buffer = len(rest), bytearray(_BUFFER)
    if into is not None:
        with into.open("wb") as file:
            file.write(rest)
            while done < size and (count := client.recv_into(buffer)):
                file.write(memoryview(buffer)[:count])
                done += count
    else:
        # the kernel drops the bytes, so that the reader's copying is not what is measured
        flags = 0 if isinstance(client, ssl.SSLSocket) else socket.MSG_TRUNC
        while done < size and (count := client.recv_into(buffer, _BUFFER, flags)):
            done += count
    if done != size:
        raise SystemExit(f"an answer of {size} bytes ended after {done}")
    return size


@dataclass(frozen=True)
class Whole:
    """What reading whole images gave, and what it cost the server."""

    speed: float  # GB (10⁹ bytes) in a second, of all readers
    cpu: float  # seconds of the server per GB


def whole(server: Server, images: int, readers: int, times: int) -> Whole:
    """Whole images over connections of their own."""
    before, began = server.cpu(), time.monotonic()
    with ThreadPoolExecutor(readers) as pool:
        total = sum(pool.map(lambda n: fetch(server, f"/web-{n % images}.iso"), range(times))) / 1e9
    return Whole(total / (time.monotonic() - began), (server.cpu() - before) / total)


def first_byte(server: Server, path: str, times: int = 200) -> float:
    """Milliseconds from connecting to the first byte of an answer, median; a server that breaks off has fewer."""
    found: list[float] = []
    broken = 0
    for _turn in range(times):
        started = time.perf_counter()
        with socket.create_connection(("127.0.0.1", server.port), 30) as client:
            client.sendall(b"GET %s HTTP/1.1\r\nHost: bench\r\nRange: bytes=0-65535\r\n\r\n" % path.encode())
            if _begins(client):
                found.append(time.perf_counter() - started)
            elif server.breaks:
                broken += 1
            else:
                raise SystemExit(f"{path}: no answer at port {server.port}")
    if broken:
        print(f"of {times} connections, one after the other: {broken} without an answer", flush=True)
    return statistics.median(found) * 1e3


def _begins(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b"H"
    except ConnectionError:
        return False


def status(server: Server, path: str) -> int:
    """The status of a first byte's range: 206 when the image is there."""
    return int(_asked(server, path, 0, 0)[0].split()[1])


def piece(server: Server, path: str, offset: int, length: int) -> bytes:
    """Bytes of an image."""
    head, body = _asked(server, path, offset, offset + length - 1)
    if not head.startswith(b"HTTP/1.1 206 ") or len(body) != length:
        raise SystemExit(f"{path}: {head!r}")
    return body


def _asked(server: Server, path: str, first: int, last: int) -> tuple[bytes, bytes]:
    with _connected(server) as client:
        form = b"GET %s HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nRange: bytes=%d-%d\r\n\r\n"
        client.sendall(form % (path.encode(), first, last))
        found = b""
        while part := client.recv(_BUFFER):
            found += part
    head, _blank, body = found.partition(b"\r\n\r\n")
    if not head:
        raise SystemExit(f"{path}: no answer")
    return head, body
