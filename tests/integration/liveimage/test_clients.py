# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other people's clients agree with the file on disk, also when the server is killed and started again on the way."""

import hashlib
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import materialise, whole
from lab.cluster.control_plane import keep_port
from tests.integration.liveimage.program import Program
from tests.integration.liveimage.readers import MIB, base, expected, network
from tests.waiting import until

SIZE = 96  # MiB: more than what the buffers of eight connections hold of a killed server
PATH = "/web-0.iso"
SLOW = "6M"  # a second, so that there is something left to interrupt

#: how each client begins slowly, and how it goes on with what it has
CLIENTS = {
    "curl": (["curl", "-sf", "--limit-rate", SLOW, "-o"], ["curl", "-sf", "-C", "-", "-o"]),
    "wget": (["wget", "-q", "--tries=1", f"--limit-rate={SLOW}", "-O"], ["wget", "-q", "-c", "-O"]),
    "aria2": (
        ["aria2c", "-q", "-x8", "-s8", "-k1M", "--max-tries=1", "--auto-file-renaming=false", "--disk-cache=0",
         "--file-allocation=none", f"--max-overall-download-limit={SLOW}", "-d/", "-o"],
        ["aria2c", "-q", "-x8", "-s8", "-k1M", "-c", "--auto-file-renaming=false", "-d/", "-o"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("bases"), SIZE)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "web-0.yaml").write_text(network(0))
    return folder


@pytest.fixture(scope="module")
def content(bases: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The image as the library makes it, which is also what a file of it on disk holds."""
    _tag, found = expected(bases, "web-0", network(0))
    assert found[: 64 * 1024] == (bases / "live.iso").read_bytes()[: 64 * 1024]
    return found


@pytest.fixture
def port() -> Iterator[int]:
    """A port for one server after the other."""
    with keep_port() as kept:
        yield kept.getsockname()[1]


@pytest.fixture(scope="module")
def server(bases: Path, documents: Path) -> Iterator[Program]:
    with Program("--nmstate-dir", str(documents), bases=bases) as program:
        program.until_served(PATH)
        yield program


def client(name: str, place: int, target: Path, url: str) -> list[str]:
    """The command line of a client; its target is the last option."""
    return [*CLIENTS[name][place], str(target).lstrip("/") if name == "aria2" else str(target), url]


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_a_download_goes_on_after_the_server_was_killed(bases, documents, content, tmp_path, port, name):
    target = tmp_path / "image.iso"
    with Program("--nmstate-dir", str(documents), bases=bases, port=port) as first:
        first.until_served(PATH)
        with subprocess.Popen(client(name, 0, target, first.url(PATH))) as running:
            until(lambda: blocks(target) > 2 * MIB, f"{name} has begun")
            first.signal(9)
            assert running.wait(180) != 0
    assert blocks(target) < len(content)
    with Program("--nmstate-dir", str(documents), bases=bases, port=port) as second:
        second.until_served(PATH)
        assert subprocess.run(client(name, 1, target, second.url(PATH)), check=False, timeout=240).returncode == 0
        assert target.read_bytes() == content
        assert f"sent_bytes_total {len(content)}" not in second.watch("/metrics"), "it went on, it did not begin again"


def blocks(path: Path) -> int:
    """Bytes of a file that were written; one that is fetched from several ends has its full size at once."""
    return path.stat().st_blocks * 512 if path.exists() else 0


def test_a_range_goes_on_with_if_range_after_a_restart(bases, documents, content, port):
    begun, tag = b"", ""
    with Program("--nmstate-dir", str(documents), bases=bases, port=port) as first:
        first.until_served(PATH)
        wanted = {"Range": "bytes=1000000-20000000"}
        with requests.get(first.url(PATH), headers=wanted, stream=True, timeout=180) as reply:
            begun, tag = reply.raw.read(5_000_001), reply.headers["ETag"]
            first.signal(9)
    assert first.ended() == -9
    with Program("--nmstate-dir", str(documents), bases=bases, port=port) as second:
        second.until_served(PATH)
        headers = {"Range": f"bytes={1_000_000 + len(begun)}-20000000", "If-Range": tag}
        rest = second.get(PATH, headers=headers)
        assert rest.status_code == 206
        assert begun + rest.content == content[1_000_000:20_000_001]
        headers["If-Range"] = tag.replace(tag[1], "0" if tag[1] != "0" else "1", 1)
        assert second.get(PATH, headers=headers).content == content


@pytest.mark.parametrize(
    "command",
    [
        ["curl", "-sf", "-o"],
        ["wget", "-q", "-O"],
        ["aria2c", "-q", "-x8", "-s8", "-k1M", "-d/", "-o"],
        ["curl", "-sf", "--parallel", "--http1.0", "-o"],
    ],
    ids=["curl", "wget", "aria2-8", "curl-http1.0"],
)
def test_whole_images(server, content, tmp_path, command):
    target = tmp_path / "image.iso"
    name = str(target).lstrip("/") if command[0] == "aria2c" else str(target)
    subprocess.run([*command, name, server.url(PATH)], check=True, timeout=240)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(content).digest()


def test_libraries_agree(server, content):
    with urllib.request.urlopen(server.url(PATH), timeout=180) as reply:
        assert reply.read() == content
    request = urllib.request.Request(server.url(PATH), headers={"Range": "bytes=-4097"})
    with urllib.request.urlopen(request, timeout=180) as reply:
        assert (reply.status, reply.read()) == (206, content[-4097:])
    with requests.Session() as session:
        assert session.get(server.url(PATH), timeout=180).content == content


def test_head_and_get_return_the_same(server):
    head = requests.head(server.url(PATH), timeout=180)
    with requests.get(server.url(PATH), stream=True, timeout=180) as get:
        reported = {name: value for name, value in get.headers.items() if name != "Date"}
    assert {name: value for name, value in head.headers.items() if name != "Date"} == reported


def test_the_file_on_disk_is_what_is_served(server, bases, content, tmp_path):
    """A file written from the served bytes is, patched back to its base, the base: nothing else was changed."""
    target = tmp_path / "written.iso"
    target.write_bytes(server.get(PATH).content)
    found = iso.inspect(str(target))
    assert found.customised
    materialise(iso.reset(found), str(tmp_path / "reset.iso"))
    assert (tmp_path / "reset.iso").read_bytes() == (bases / "live.iso").read_bytes()
    materialise(whole(identify(str(target))), str(tmp_path / "copy.iso"))
    assert (tmp_path / "copy.iso").read_bytes() == content


@pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu is not installed")
def test_qemu_reads_it_as_a_disk(server, content, tmp_path):
    """QEMU asks for ranges as a BMC does; one request at a time: its driver hangs with several, at any server."""
    target = tmp_path / "disk.raw"
    source = f'json:{{"driver": "raw", "file": {{"driver": "http", "url": "{server.url(PATH)}"}}}}'
    convert = ["qemu-img", "convert", "-m", "1", "-O", "raw", source, str(target)]
    done = subprocess.run(convert, capture_output=True, check=False)
    if b"Unknown driver" in done.stderr or b"Unknown protocol" in done.stderr:
        pytest.skip("this QEMU was built without its curl driver")
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[: len(content)] == content
