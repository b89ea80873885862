# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server over TLS: the same bytes and limits, also when a reader fails within a record or a handshake."""

import contextlib
import random
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import requests

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Zeros, read, whole
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import listener
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from tests.integration.liveimage.serving import Served
from tests.waiting import until
from tests.web_servers import certificate

SIZE = 24 * 1024 * 1024  # more than the buffers of two sockets
PATIENCE = 180


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "base.iso").write_bytes(random.Random(1).randbytes(SIZE))
    patches = [(5_000_000, b"ignition" * 20_000), (5_160_000, Zeros(700_000)), (9_000_000, b"#" * 1139)]
    overlay = whole(identify(str(folder / "base.iso"))).patched(patches)
    registry = Registry()
    registry.put("/host.iso", "host", overlay, 0)
    certificate(folder)
    return registry, read(overlay, 0, overlay.size), folder


@pytest.fixture
def served(made):
    registry, _content, folder = made
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with Served(registry, tls=context) as server:
        yield server


def connected(server: Served, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, version
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    client = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    # a cut is an error, an end that the server announces is none
    return context.wrap_socket(client, suppress_ragged_eofs=False)


def ranged(first: int, last: int, *lines: bytes) -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"GET /host.iso HTTP/1.1\r\nHost: x\r\nRange: bytes=%d-%d\r\n%b\r\n" % (first, last, more)


def everything(client: ssl.SSLSocket) -> bytes:
    found = bytearray()
    while part := client.recv(1 << 16):
        found += part
    return bytes(found)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_the_end_of_a_connection_is_announced(served, made, version):
    _registry, content, _folder = made
    with connected(served, version) as client:
        client.sendall(ranged(0, SIZE - 1, b"Connection: close"))
        head, _blank, body = everything(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206 ")
        assert body == content
    until(lambda: served.metrics.connections == 0, "the end of the connection")


def test_clients_get_images_and_ranges(served, made):
    _registry, content, folder = made
    with requests.Session() as session:
        get = partial(session.get, served.url("/host.iso"), verify=str(folder / "cert.pem"), timeout=PATIENCE)
        assert get().content == content
        for first, last in ((0, 0), (4_999_990, 5_000_009), (5_159_990, 5_900_000), (100, 65_635), (100, 65_636)):
            assert get(headers={"Range": f"bytes={first}-{last}"}).content == content[first : last + 1]


def test_requests_sent_ahead_to_a_reader_that_waits(served, made):
    """More answers than the sockets hold, begun before the first is read; each record is cut somewhere."""
    _registry, content, _folder = made
    wanted = [(n * 50_000, n * 50_000 + 49_999) for n in range(400)]
    with connected(served) as client:
        asked = b"".join(ranged(first, last) for first, last in wanted)
        client.sendall(asked[: len(asked) // 2])
        until(lambda: served.metrics.bytes_sent, "the first answers")
        client.sendall(asked[len(asked) // 2 :] + b"GET / HTTP/1.0\r\n\r\n")
        found = everything(client)
    at = 0
    for first, last in wanted:
        head = found.index(b"\r\n\r\n", at) + 4
        assert b"Content-Range: bytes %d-%d/" % (first, last) in found[at:head]
        at = head + last - first + 1
        assert found[head:at] == content[first : last + 1]
    assert found[at:].startswith(b"HTTP/1.1 404 ")


def test_a_head_in_small_records(served, made):
    _registry, content, _folder = made
    with connected(served) as client:
        for byte in ranged(7, 4102, b"Connection: close"):
            client.sendall(bytes([byte]))
        assert everything(client).partition(b"\r\n\r\n")[2] == content[7:4103]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /host.iso HTTP/1.1\r\n\r\n", 400),
        (b"GET /host.iso HTTP/1.1\r\nHost: x\r\n" + b"X-Much: %s\r\n" % (b"a" * 1000) * 40 + b"\r\n", 431),
    ],
    ids=["nonsense", "no-host", "long"],
)
def test_hostile_requests_end_the_connection(served, request_, status):
    with connected(served) as client:
        client.sendall(request_)
        assert everything(client).startswith(b"HTTP/1.1 %d " % status)


def test_what_is_no_handshake_is_cut(served):
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as client:
        client.sendall(b"GET /host.iso HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in client.recv(1 << 16)
    until(lambda: served.metrics.connections == 0, "the end of the connection")


def test_a_handshake_that_never_ends_is_cut(served, monkeypatch):
    monkeypatch.setattr(listener, "HEAD", 1.0)
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as client:
        assert client.recv(1) == b""


def test_a_reader_that_does_not_read_is_cut(served, monkeypatch):
    monkeypatch.setattr(listener, "STALL", 1.0)
    with connected(served) as client:
        client.sendall(b"GET /host.iso HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: served.metrics.cut, "the end of its connection")
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            everything(client)


def test_parallel_readers_get_their_own_bytes(served, made):
    _registry, content, folder = made

    def reader(seed: int) -> int:
        chance, wrong = random.Random(seed), 0
        with requests.Session() as session:
            get = partial(session.get, served.url("/host.iso"), verify=str(folder / "cert.pem"), timeout=PATIENCE)
            for _turn in range(20):
                start = chance.randrange(SIZE)
                stop = min(SIZE, start + chance.choice([1, 100, 4096, 300_000, 3_000_000]))
                reply = get(headers={"Range": f"bytes={start}-{stop - 1}"})
                wrong += reply.status_code != 206 or reply.content != content[start:stop]
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(reader, range(8))) == 0
