# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image files of the controller: proven, recognised by their content, and served in ranges."""

from __future__ import annotations

import hashlib
import http.client
import os
import subprocess

import pytest

from ansible_collections.kubenode.provision.plugins.action import node_image_source
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import run_server
from tests.web_servers import Server

CONTENT = bytes(range(256)) * 40
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "disk.raw"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def ask(image):
    """Return a function that asks a server with this one file."""
    server = Server(run_server.source_handler({"/secret/0.img": {"file": str(image), "digest": DIGEST}}))

    def inner(path="/secret/0.img", method="GET", **headers):
        connection = http.client.HTTPConnection(server.host, timeout=180)
        connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body

    yield inner
    server.close()


def test_whole_and_head(ask):
    response, body = ask()
    assert (response.status, body, response.headers["ETag"]) == (200, CONTENT, f'"{DIGEST}"')
    response, body = ask(method="HEAD")
    assert (response.status, body, response.headers["Content-Length"]) == (200, b"", str(len(CONTENT)))


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [("bytes=0-9", 0, 9), ("bytes=10000-", 10000, 10239), ("bytes=10230-99999", 10230, 10239)],
)
def test_ranges(ask, wanted, first, last):
    response, body = ask(Range=wanted, If_Range=f'"{DIGEST}"')
    assert (response.status, body) == (206, CONTENT[first : last + 1])
    assert response.headers["Content-Range"] == f"bytes {first}-{last}/{len(CONTENT)}"


@pytest.mark.parametrize(
    "headers", [{"Range": "bytes=-5"}, {"Range": "lines=1-2"}, {"Range": "bytes=5-", "If_Range": '"x"'}]
)
def test_what_is_no_range_of_this_file_gets_the_whole(ask, headers):
    response, body = ask(**headers)
    assert (response.status, body) == (200, CONTENT)


def test_beyond_the_end_and_other_paths(ask):
    assert ask(Range="bytes=10240-")[0].status == 416
    for path in ("/", "/0.img", "/secret/", "/secret/../secret/0.img", "/secret/0.img/", "/etc/passwd"):
        assert ask(path)[0].status == 404


def test_a_backwards_range_is_none(ask):
    assert ask(Range="bytes=9-3")[0].status == 200


def test_a_process_is_known_by_its_start():
    assert run_server.start_of(os.getpid())
    done = subprocess.Popen(["true"])
    done.wait()
    assert run_server.start_of(done.pid) == ""


def test_a_file_is_proven_by_its_digest(image, tmp_path):
    assert node_image_source.proven(image, DIGEST.upper()) == DIGEST
    with pytest.raises(node_image_source.FileNotUsable, match="is damaged or not the one you meant"):
        node_image_source.proven(image, "0" * 64)
    with pytest.raises(node_image_source.FileNotUsable, match="there is no such file"):
        node_image_source.proven(tmp_path / "none", DIGEST)
    with pytest.raises(node_image_source.FileNotUsable, match="there is no such file"):
        node_image_source.proven(tmp_path / ("x" * 300), DIGEST)


@pytest.mark.parametrize(
    ("head", "what"), [(b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"PK\x03\x04", "zip"), (b"<html>", "a web page")]
)
def test_what_is_no_image_is_named(tmp_path, head, what):
    path = tmp_path / "file"
    path.write_bytes(head + bytes(64))
    with pytest.raises(node_image_source.FileNotUsable, match=f"it is {what}; give a raw image"):
        node_image_source.is_qcow2(path)


def test_qcow2_is_recognised_by_its_content(image, tmp_path):
    assert not node_image_source.is_qcow2(image)
    (tmp_path / "a.raw").write_bytes(b"QFI\xfb" + bytes(64))
    assert node_image_source.is_qcow2(tmp_path / "a.raw")
