# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of an image comes out of a real registry whole and proven, or not at all; no disk has a part in it."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands.conftest import OCI, PATH
from tests.integration.commands.registry import LOGIN, Registry, sha256, with_password

ARCHIVE = b"an archive" * 500_000
NAME = "Debian-1300-trixie-amd64-base.tar.gz"

Pull = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> Iterator[Registry]:
    """A registry that wants a login, with an archive in it."""
    found = with_password(tmp_path_factory.mktemp("registry"))
    found.artifact("node/image", "v1", {NAME: ARCHIVE})
    found.artifact("node/image", "two", {NAME: ARCHIVE, "other.tar.gz": b"x"})
    found.image("node/image", "layers", [b"a", b"b"])
    yield found
    found.close()


@pytest.fixture
def pull(front, tmp_path) -> Pull:
    """Run the command as the installation program does."""

    def run(
        reference: str, switches: str = "", room: object = 1 << 30, token: str = LOGIN
    ) -> subprocess.CompletedProcess[str]:
        url = f"oci://{front.host}/{reference}#plain-http=yes{switches}"
        words = [str(OCI), "--to-file", str(tmp_path / NAME), str(room), str(tmp_path / "output.json"), url]
        environment = {"PATH": PATH, "OCI_REGISTRY_AUTH_TOKEN": token}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        assert "geheim" not in done.stdout + done.stderr
        return done

    return run


def reported(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last line of its output."""
    return json.loads(done.stdout.splitlines()[-1])


def test_the_only_file_arrives_with_its_digests(pull, registry, tmp_path):
    done = pull("node/image:v1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / NAME).read_bytes() == ARCHIVE
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    found = reported(done)
    assert (found["digest"], found["size"]) == (sha256(ARCHIVE), len(ARCHIVE))
    assert "downloaded" in json.loads((tmp_path / "output.json").read_text())["message"]
    again = pull(f"node/image@{found['image']}")
    assert reported(again) == found


def test_one_of_several_files_is_named(pull, tmp_path):
    assert f"name one with #file= behind the image URL: {NAME}, other.tar.gz" in pull("node/image:two").stderr
    assert pull("node/image:two", "&file=other.tar.gz").returncode == 0
    assert (tmp_path / NAME).read_bytes() == b"x"


def test_an_interrupted_transfer_goes_on_where_it_stopped(pull, front, tmp_path):
    front.proxy.faults = [("/blobs/", "cut", 1_000_007)]
    assert pull("node/image:v1").returncode == 0
    assert front.proxy.ranges() == ["bytes=1000007-"]
    assert (tmp_path / NAME).read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("reference", "more", "faults", "why"),
    [
        ("node/image:v1", {"token": "robot:wrong"}, [], "OCI_REGISTRY_AUTH_TOKEN is not accepted"),
        ("node/image:v1", {"token": ""}, [], "set OCI_REGISTRY_AUTH_TOKEN"),
        ("node/image:none", {}, [], "HTTP 404"),
        ("node/image@sha256:" + "0" * 64, {}, [], "HTTP 404"),
        ("node/image:layers", {}, [], "a container image of 2 layers, and one archive is needed"),
        ("node/image:v1", {"room": 4096}, [], "it has 5 MiB, and the rescue has 0 MiB of memory for it"),
        ("node/image:v1", {"switches": "&layout=root:ext4"}, [], "layout= is for a disk"),
        ("node/image:v1", {}, [("/blobs/", "flip", 5000)], f"expected {sha256(ARCHIVE)[7:]}"),
        ("node/image:v1", {}, [("/blobs/", "short", 4096)], "has 4096 bytes, its manifest says"),
    ],
)
def test_what_does_not_come_leaves_no_file_of_that_name(pull, front, tmp_path, reference, more, faults, why):
    front.proxy.faults = faults
    done = pull(reference, **more)
    assert (done.returncode, why in done.stderr) == (1, True), done
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("room", ["", "-1", "1e9", "x"])
def test_a_call_that_is_none_does_nothing(pull, front, tmp_path, room):
    done = pull("node/image:v1", room=room)
    assert (done.returncode, "usage: " in done.stderr) == (2, True)
    assert front.proxy.seen == []
    assert list(Path(tmp_path).glob("*.json")) == []
