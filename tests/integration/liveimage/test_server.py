# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server over real sockets: bytes, headers, limits, and what happens when the world changes under it."""

import os
import random
import socket
import time
from pathlib import Path

import pytest
import requests

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay, Zeros, read, whole
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import listener
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.listener import Limits
from tests.integration.liveimage.serving import Served
from tests.waiting import until

SIZE = 24 * 1024 * 1024


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "base.iso"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path


def image(base: Path, text: bytes = b"ignition") -> Overlay:
    patches = [(5_000_000, text * 2000), (5_000_000 + len(text) * 2000, Zeros(300_000)), (9_000_000, b"#" * 1139)]
    return whole(identify(str(base))).patched(patches, [text])


@pytest.fixture(scope="module")
def content(base: Path) -> bytes:
    overlay = image(base)
    return read(overlay, 0, overlay.size)


@pytest.fixture(scope="module")
def registry(base: Path) -> Registry:
    found = Registry()
    found.put("/host.iso", "host", image(base), base.stat().st_mtime)
    return found


@pytest.fixture(scope="module")
def server(registry):
    with Served(registry) as served:
        yield served


def test_whole_image(server, content):
    reply = requests.get(server.url("/host.iso"), timeout=180)
    assert reply.status_code == 200
    assert reply.content == content
    assert reply.headers["Content-Type"] == "application/x-iso9660-image"
    assert reply.headers["Accept-Ranges"] == "bytes"


def test_head_returns_the_same_without_a_body(server, content):
    reply = requests.head(server.url("/host.iso"), timeout=180)
    assert (reply.status_code, int(reply.headers["Content-Length"]), reply.content) == (200, len(content), b"")
    part = requests.head(server.url("/host.iso"), headers={"Range": "bytes=5-9"}, timeout=180)
    assert (part.status_code, part.headers["Content-Range"]) == (206, f"bytes 5-9/{len(content)}")


@pytest.mark.parametrize("first", [0, 1, 4_999_999, 5_000_001, 5_016_000 - 1, 5_315_999, 8_999_998, SIZE - 1, SIZE])
@pytest.mark.parametrize("length", [1, 7, 4096, 400_000])
def test_ranges_over_every_kind_of_border(server, content, first, length):
    reply = requests.get(server.url("/host.iso"), headers={"Range": f"bytes={first}-{first + length - 1}"}, timeout=180)
    assert reply.status_code == 206
    assert reply.content == content[first : first + length]


def test_several_ranges_are_parts(server, content):
    wanted = [(0, 10), (4_999_995, 5_000_005), (len(content) - 3, len(content))]
    header = "bytes=" + ",".join(f"{start}-{stop - 1}" for start, stop in wanted)
    reply = requests.get(server.url("/host.iso"), headers={"Range": header}, timeout=180)
    boundary = reply.headers["Content-Type"].partition("boundary=")[2].encode()
    parts = reply.content.split(b"\r\n--" + boundary)[1:-1]
    assert reply.content.endswith(b"\r\n--" + boundary + b"--\r\n")
    for (start, stop), part in zip(wanted, parts, strict=True):
        head, _blank, body = part.partition(b"\r\n\r\n")
        assert f"Content-Range: bytes {start}-{stop - 1}/{len(content)}".encode() in head
        assert body == content[start:stop]


def test_a_range_outside_is_416(server, content):
    reply = requests.get(server.url("/host.iso"), headers={"Range": f"bytes={len(content)}-"}, timeout=180)
    assert (reply.status_code, reply.headers["Content-Range"]) == (416, f"bytes */{len(content)}")


def test_tags_save_a_download(server):
    url = server.url("/host.iso")
    tag = requests.head(url, timeout=180).headers["ETag"]
    assert requests.get(url, headers={"If-None-Match": tag}, timeout=180).status_code == 304
    assert requests.get(url, headers={"If-Range": tag, "Range": "bytes=0-0"}, timeout=180).status_code == 206
    assert requests.get(url, headers={"If-Range": '"other"', "Range": "bytes=0-0"}, timeout=180).status_code == 200
    assert requests.get(url, headers={"If-Match": '"other"'}, timeout=180).status_code == 412


def test_icc_15_2_nothing_is_listed(server):
    for path in ("/", "/host", "/host.iso/", "//host.iso", "/a/host.iso", "/../host.iso", "/%2e%2e/host.iso"):
        assert raw(server, b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode(), half_close=True).startswith(
            b"HTTP/1.1 404"
        )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_icc_15_12_only_get_and_head(server, method):
    reply = requests.request(method, server.url("/host.iso"), timeout=180)
    assert (reply.status_code, reply.headers["Allow"]) == (405, "GET, HEAD")
    assert len(reply.content) < 100


def test_icc_15_6_validators_survive_a_restart(base, content):
    found = []
    for _start in range(2):
        registry = Registry()
        registry.put("/host.iso", "host", image(base), base.stat().st_mtime)
        with Served(registry) as served:
            headers = requests.head(served.url("/host.iso"), timeout=180).headers
            found.append((headers["ETag"], headers["Last-Modified"]))
            time.sleep(1.1 if not found[1:] else 0)
    assert found[0] == found[1]


def raw(server: Served, data: bytes, *, half_close: bool = False) -> bytes:
    """What comes for these bytes until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), 180) as client:
        client.sendall(data)
        if half_close:
            client.shutdown(socket.SHUT_WR)
        found = b""
        while part := client.recv(65536):
            found += part
        return found


def test_requests_sent_ahead_are_answered_in_order(server, content):
    pieces = [(n * 1000, n * 1000 + 9) for n in range(40)]
    sent = b"".join(b"GET /host.iso HTTP/1.1\r\nHost: x\r\nRange: bytes=%d-%d\r\n\r\n" % piece for piece in pieces)
    answer = raw(server, sent, half_close=True)
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 206")[1:]]
    assert bodies == [content[first : last + 1] for first, last in pieces]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /host.iso HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /host.iso HTTP/1.1\r\nHost: x\r\n" + b"X-Much: %s\r\n" % (b"a" * 1000) * 40 + b"\r\n", 431),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"POST /host.iso HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200_000, 400),
    ],
)
def test_hostile_requests_end_the_connection(server, request_, status):
    answers = raw(server, request_, half_close=True)
    assert answers.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in answers


def test_http_1_0(server, content):
    closed = raw(server, b"GET /host.iso HTTP/1.0\r\nRange: bytes=0-9\r\n\r\n")
    assert b"Connection: close" in closed
    assert closed.endswith(content[:10])
    again = b"GET /host.iso HTTP/1.0\r\nConnection: keep-alive\r\nRange: bytes=0-9\r\n\r\n"
    kept = raw(server, again + again, half_close=True)
    assert kept.count(b"Connection: keep-alive") == kept.count(b"HTTP/1.") == 2


def test_the_limit_of_an_address_can_be_switched_off(registry):
    with Served(registry, limits=Limits(connections=3, per_address=0)) as served:
        head = b"HEAD /host.iso HTTP/1.1\r\nHost: x\r\n\r\n"
        clients = [socket.create_connection(("127.0.0.1", served.port), 180) for _n in range(3)]
        for client in clients:
            client.sendall(head)
            assert client.recv(12) == b"HTTP/1.1 200"
        assert raw(served, head, half_close=True).startswith(b"HTTP/1.1 503")  # the limit of all
        for client in clients:
            client.close()


def test_too_many_connections_are_turned_away(registry):
    with Served(registry, limits=Limits(connections=10, per_address=3)) as served:
        first = [socket.create_connection(("127.0.0.1", served.port), 180) for _n in range(3)]
        for client in first:
            client.sendall(b"HEAD /host.iso HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        assert raw(served, b"HEAD /host.iso HTTP/1.1\r\nHost: x\r\n\r\n", half_close=True).startswith(b"HTTP/1.1 503")
        first.pop().close()
        head = b"HEAD /host.iso HTTP/1.1\r\nHost: x\r\n\r\n"
        until(lambda: raw(served, head, half_close=True).startswith(b"HTTP/1.1 200"), "a free place")
        for client in first:
            client.close()
        assert served.metrics.connections_refused >= 1


def test_a_request_that_never_ends_is_cut(registry, monkeypatch):
    monkeypatch.setattr(listener, "HEAD", 1.0)
    with Served(registry) as served, socket.create_connection(("127.0.0.1", served.port), 180) as client:
        client.sendall(b"GET /host.iso HTTP/1.1\r\n")
        assert client.recv(1) == b""


def test_a_reader_that_does_not_read_is_cut(registry, monkeypatch):
    monkeypatch.setattr(listener, "STALL", 1.0)
    with Served(registry) as served, socket.create_connection(("127.0.0.1", served.port), 180) as client:
        client.sendall(b"GET /host.iso HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: served.metrics.cut, "the end of its connection")
        until(lambda: served.metrics.connections == 0, "a server without connections")


def test_icc_15_14_a_base_written_into_is_never_mixed(base, tmp_path):
    own = tmp_path / "own.iso"
    own.write_bytes(base.read_bytes())
    registry = Registry()
    registry.put("/host.iso", "host", image(own), 0)
    with Served(registry) as served:
        assert requests.head(served.url("/host.iso"), timeout=180).status_code == 200
        with own.open("r+b") as file:
            file.write(b"changed")
        os.utime(own, ns=(1, 1))

        def refusal() -> list[str]:
            reply = requests.head(served.url("/host.iso"), timeout=180)
            return list(reply.headers) if reply.status_code == 503 else []

        assert "Retry-After" in until(refusal, "the refusal of a base that changed")
        registry.put("/host.iso", "host", image(own), 0)
        fresh = image(own)
        assert requests.get(served.url("/host.iso"), timeout=180).content == read(fresh, 0, fresh.size)


def test_a_base_replaced_by_another_file_is_read_to_the_end(base, tmp_path):
    own = tmp_path / "own.iso"
    own.write_bytes(base.read_bytes())
    registry = Registry()
    old = image(own)
    expected = read(old, 0, old.size)
    registry.put("/host.iso", "host", old, 0)
    with Served(registry) as served:
        with requests.get(served.url("/host.iso"), stream=True, timeout=180) as reply:
            begun = reply.raw.read(1_000_000)
            new = tmp_path / "new.iso"
            new.write_bytes(random.Random(2).randbytes(SIZE))
            new.rename(own)
            registry.put("/host.iso", "host", image(own), 0)
            assert begun + reply.raw.read() == expected
        fresh = image(own)
        assert requests.get(served.url("/host.iso"), timeout=180).content == read(fresh, 0, fresh.size)
