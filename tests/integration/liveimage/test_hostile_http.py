# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that are no good requests, on real connections: the server lives, and no answer with bytes has wrong ones."""

import contextlib
import random
import re
import socket
from pathlib import Path

import pytest
import requests

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import read, whole
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from tests.integration.liveimage.serving import Served
from tests.unit.liveimage.fuzz.mutations import mutated, seeds
from tests.waiting import until

SIZE, CASES = 200_000, 400
_HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(.*?)\r\n\r\n", re.DOTALL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    path: Path = tmp_path_factory.mktemp("base") / "base.iso"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    overlay = whole(identify(str(path))).patched([(1000, b"ignition" * 100)])
    registry = Registry()
    registry.put("/a.iso", "host", overlay, 0)
    with Served(registry) as server:
        yield server, read(overlay, 0, overlay.size)


def answers(server: Served, data: bytes, pieces: int) -> bytes:
    """Everything that comes back for these bytes, sent in so many pieces."""
    with socket.create_connection(("127.0.0.1", server.port), 180) as client:
        found = b""
        with contextlib.suppress(OSError):  # it may be cut while we send
            for place in range(pieces):
                client.sendall(data[len(data) * place // pieces : len(data) * (place + 1) // pieces])
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                found += part
        return found


def check(found: bytes, content: bytes) -> None:
    """Answers that follow one another, each as long as it says, with the image's bytes or none of them."""
    at = 0
    while at < len(found):
        head = _HEAD.match(found, at)
        assert head, found[at : at + 200]
        status, lines = int(head[1]), head[2] + b"\r\n"
        assert status in (200, 206, 304, 400, 404, 405, 412, 414, 416, 431), found[at : at + 200]
        length = re.search(rb"Content-Length: (\d+)\r\n", lines)
        place = re.search(rb"Content-Range: bytes (\d+)-(\d+)/%d\r\n" % len(content), lines)
        begin = head.end()
        at = begin + (int(length[1]) if length and status != 304 else 0)
        if status not in (200, 206):
            continue
        if found[begin : begin + 9] == b"HTTP/1.1 " or begin == len(found):
            at = begin  # the answer to HEAD
            continue
        body = found[begin:at]
        if place:
            assert body == content[int(place[1]) : int(place[2]) + 1]
        elif status == 200:
            assert body == content
        else:
            for part in re.finditer(rb"Content-Range: bytes (\d+)-(\d+)/\d+\r\n\r\n", body):
                wanted = content[int(part[1]) : int(part[2]) + 1]
                assert body[part.end() : part.end() + len(wanted)] == wanted


def test_hostile_bytes(served):
    server, content = served
    chance, known = random.Random(5), seeds("request")
    cases = [*known, *(mutated("request", chance, known) for _turn in range(CASES)), *(
        mutated("request", chance, known) + b"GET /a.iso HTTP/1.1\r\nHost: x\r\nRange: bytes=990-1010\r\n\r\n"
        for _turn in range(CASES))]  # fmt: skip
    for number, case in enumerate(cases):
        try:
            check(answers(server, case, 1 + number % 3), content)
        except AssertionError as error:
            raise AssertionError(f"{case!r}: {error}") from error
    assert requests.get(server.url("/a.iso"), timeout=60).content == content
    until(lambda: server.metrics.connections <= 1, "the end of all connections")


@pytest.mark.parametrize("head", [b"X: " + b"a" * 100_000, b"a" * 100_000, b"X:" + b" " * 100_000],
                         ids=["value", "name", "blanks"])  # fmt: skip
def test_a_header_without_end_is_refused_on_every_connection(served, head):
    server, content = served
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 180)) for _number in range(60)
        ]
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(b"GET /a.iso HTTP/1.1\r\nHost: x\r\n" + head)
        for client in clients:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 431 ")
    assert requests.get(server.url("/a.iso"), timeout=60).content == content
    until(lambda: server.metrics.connections <= 1, "the end of all connections")
