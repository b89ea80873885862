# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that ends lets readers have what they began; its short way never gives another answer."""

import asyncio
import random
import socket
from pathlib import Path

import pytest
import requests

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay, read, whole
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from tests.integration.liveimage.serving import Served

SIZE = 64 * 1024 * 1024  # more than the buffers of two sockets


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    path: Path = tmp_path_factory.mktemp("base") / "base.iso"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return whole(identify(str(path))).patched([(1_000_000, b"ignition" * 100)])


@pytest.fixture
def registry(overlay: Overlay) -> Registry:
    found = Registry()
    found.put("/host.iso", "host", overlay, 0)
    return found


def test_drain_ends_idle_readers_and_waits_for_the_others(registry, overlay):
    with Served(registry) as served, requests.Session() as idle:
        assert idle.head(served.url("/host.iso"), timeout=180).status_code == 200
        with requests.get(served.url("/host.iso"), stream=True, timeout=180) as reply:
            begun = reply.raw.read(1_000_000)
            drained = asyncio.run_coroutine_threadsafe(served.listener.drain(60), served.loop)
            while served.metrics.connections > 1:  # until the idle one is gone
                assert not drained.done()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", served.port), 30).close()
            assert begun + reply.raw.read() == read(overlay, 0, overlay.size)
        drained.result(60)
        assert served.metrics.connections == 0
        assert served.metrics.cut == 0


def test_drain_gives_up_on_a_reader_that_does_not_read(registry):
    with Served(registry) as served, requests.get(served.url("/host.iso"), stream=True, timeout=180) as reply:
        asyncio.run_coroutine_threadsafe(served.listener.drain(0.3), served.loop).result(60)
        assert served.metrics.connections == 1
        assert reply.status_code == 200
    assert served.metrics.cut == 1


def ask(served: Served, *lines: bytes) -> bytes:
    """The body of the answer to a request that is sent in one piece, on a connection of its own."""
    with socket.create_connection(("127.0.0.1", served.port), 30) as client:
        client.sendall(b"".join(line + b"\r\n" for line in lines) + b"\r\n")
        client.shutdown(socket.SHUT_WR)
        found = b""
        while part := client.recv(65536):
            found += part
    return found.partition(b"\r\n\r\n")[2] if found.startswith(b"HTTP/1.1 206 ") else found


RANGE, OTHER = (2_000_000, 2_000_099), (3_000_000, 3_004_095)


@pytest.mark.parametrize(
    "lines",
    [
        (b"GET /host.iso HTTP/1.1", b"Host: x", b"Range: bytes=%d-%d"),
        (b"GET /host.iso HTTP/1.1", b"range: bytes=%d-%d", b"Host: x"),
        (b"GET /host.iso HTTP/1.1", b"Host: x", b"X-Range: bytes=5-9", b"Range: bytes=%d-%d"),
        (b"GET /host.iso HTTP/1.1", b"Host: x", b"X-Orange: bytes=5-9", b"Range:bytes=%d-%d"),
        (b"GET /host.iso HTTP/1.0", b"Connection: keep-alive", b"Range: bytes=%d-%d"),
        (b"GET /host.iso HTTP/1.1", b"Host: x", b"Connection: close", b"Range: bytes=%d-%d"),
        (b"GET /host.iso HTTP/1.1", b"Host: x", b"If-Match: *", b"Range: bytes=%d-%d"),
    ],
    ids=["plain", "small-letters", "another-range-before", "range-inside-a-name", "http-1.0", "close", "if-match"],
)
def test_heads_in_every_form_mean_the_same(registry, overlay, lines):
    with Served(registry) as served:
        for first, last in (RANGE, OTHER, RANGE, (999_990, 1_000_010), (5_000_000, 5_500_000)):
            asked = [line % (first, last) if b"%d" in line else line for line in lines]
            assert ask(served, *asked) == read(overlay, first, last - first + 1)


def test_a_head_is_refused_once_its_image_is_gone(registry, overlay):
    with Served(registry) as served:
        lines = (b"GET /host.iso HTTP/1.1", b"Host: gone", b"Range: bytes=5000000-5000009")
        assert ask(served, *lines) == ask(served, *lines) == read(overlay, 5_000_000, 10)
        registry.remove("/host.iso")
        assert ask(served, *lines).startswith(b"HTTP/1.1 404 ")
        other = whole(overlay.base).patched([(5_000_000, b"other-image")])
        registry.put("/host.iso", "host", other, 0)
        assert ask(served, *lines) == b"other-imag"


def test_a_small_range_to_a_reader_that_does_not_read_yet(registry, overlay):
    """Answers on the short way that the socket did not take whole are ended on the long one."""
    wanted = [(n * 40_000 + 1_100_000, n * 40_000 + 1_139_999) for n in range(400)]  # 16 MB
    with Served(registry) as served, socket.create_connection(("127.0.0.1", served.port), 60) as client:
        for first, last in wanted:
            client.sendall(b"GET /host.iso HTTP/1.1\r\nHost: s\r\nRange: bytes=%d-%d\r\n\r\n" % (first, last))
        client.shutdown(socket.SHUT_WR)
        found = bytearray()
        while part := client.recv(1024 * 1024):
            found += part
    at = 0
    for first, last in wanted:
        head = found.index(b"\r\n\r\n", at) + 4
        assert b"Content-Range: bytes %d-%d/" % (first, last) in found[at:head]
        at = head + last - first + 1
        assert found[head:at] == read(overlay, first, last - first + 1)
    assert at == len(found)
