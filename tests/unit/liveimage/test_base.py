# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of a base: its content and nothing else, computed once for each state of the file."""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import base_file
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Digests, glance, identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Bases, NotReady
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import whole
from tests.unit.liveimage.maker import LAYOUTS, make

SIZE = 5 * 1024 * 1024 + 77  # most of its bytes are in no sample
CONTENT = random.Random(1).randbytes(SIZE)
KEPT = "base-digests.json"


def base(folder: Path, name: str = "base.iso", content: bytes = CONTENT) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.fixture
def digests(monkeypatch) -> Digests:
    """A process that has just begun; every file is large, and was written long ago."""
    found = Digests()
    monkeypatch.setattr(base_file, "DIGESTS", found)
    monkeypatch.setattr(base_file, "LARGE", 1)
    monkeypatch.setattr(base_file, "_FRESH", 0.0)
    return found


def of(digests: Digests, path: Path) -> str:
    with path.open("rb") as file:
        return digests.of(file, str(path))


def test_equal_files_of_two_servers_have_one_tag(tmp_path):
    one, other = base(tmp_path), base(tmp_path, "copy.iso")
    os.utime(other, (1, 1))
    tags = {whole(identify(str(path))).patched([(100, b"ignition")]).etag() for path in (one, other)}
    assert len(tags) == 1
    assert identify(str(one)).identity == hashlib.sha256(CONTENT).hexdigest()
    assert identify(str(one)) != identify(str(other))  # they are still two files


@pytest.mark.parametrize("place", [0, 70_001, SIZE // 2 + 5000, SIZE - 1])
def test_every_byte_counts(tmp_path, place):
    changed = bytearray(CONTENT)
    changed[place] ^= 1
    times = os.stat(base(tmp_path))
    before = identify(str(tmp_path / "base.iso")).identity
    other = base(tmp_path, content=bytes(changed))
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert identify(str(other)).identity != before


def test_a_kept_digest_is_used_by_the_next_start(tmp_path, digests, monkeypatch):
    path, folder = base(tmp_path), tmp_path / "cache"
    digests.keep(str(folder))
    digest = of(digests, path)
    assert stat.S_IMODE((folder / KEPT).stat().st_mode) == 0o600
    following = Digests()
    assert not following.known(str(path))
    following.keep(str(folder))
    assert following.known(str(path))
    monkeypatch.setattr(base_file.hashlib, "sha256", None)  # nothing is computed
    assert of(following, path) == digest


def test_a_kept_digest_is_of_that_state_of_the_file_only(tmp_path, digests):
    path = base(tmp_path)
    digests.keep(str(tmp_path / "cache"))
    before = of(digests, path)
    times = path.stat()
    with path.open("r+b") as file:
        file.write(b"other")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not digests.known(str(path))
    assert of(digests, path) != before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": "b"}', '{"1:2:3:4:5": "no digest"}', '{"1:2:3:4:5": 5}', "\xff"]
)
def test_damaged_notes_are_computed_afresh(tmp_path, digests, text):
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / KEPT).write_text(text, encoding="latin-1")
    digests.keep(str(folder))
    path = base(tmp_path)
    assert not digests.known(str(path))
    assert of(digests, path) == hashlib.sha256(CONTENT).hexdigest()
    assert list(json.loads((folder / KEPT).read_text()).values()) == [hashlib.sha256(CONTENT).hexdigest()]


def test_few_are_kept_and_none_where_it_is_not_possible(tmp_path, digests):
    folder = tmp_path / "cache"
    digests.keep(str(folder))
    paths = [base(tmp_path, f"{number}.iso", b"%d" % number) for number in range(70)]
    found = [of(digests, path) for path in paths]
    assert list(json.loads((folder / KEPT).read_text()).values()) == found[-64:]
    digests.keep(str(paths[0]))  # no folder
    assert of(digests, base(tmp_path)) == hashlib.sha256(CONTENT).hexdigest()


def test_a_file_written_a_moment_ago_is_not_kept(tmp_path, digests, monkeypatch):
    monkeypatch.setattr(base_file, "_FRESH", 10_000.0)
    digests.keep(str(tmp_path / "cache"))
    of(digests, base(tmp_path))
    assert not (tmp_path / "cache").exists()


def test_a_file_that_is_written_to_meanwhile_has_no_digest(tmp_path, digests, monkeypatch):
    path = base(tmp_path)

    class Changing:
        def __init__(self) -> None:
            os.utime(path, (5, 5))

        def update(self, _block: bytes) -> None:
            pass

    monkeypatch.setattr(base_file.hashlib, "sha256", Changing)
    with pytest.raises(ImageError, match="is being written"):
        of(digests, path)
    assert not digests.known(str(path))


def test_a_glance_computes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(base_file.hashlib, "sha256", None)
    found = glance(str(base(tmp_path)))
    assert (found.size, found.identity) == (SIZE, "")
    assert found.unchanged()


def test_who_asks_for_a_large_base_does_not_wait_for_its_digest(tmp_path, digests, monkeypatch):
    monkeypatch.setattr("ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases.DIGESTS", digests)
    path = str(make(tmp_path / "live.iso", LAYOUTS["2023-igninfo"]))
    (tmp_path / "live.img").write_bytes(b"INITRD" * 10)
    os.utime(path, (1, 1))
    now = Bases(path, str(tmp_path / "live.img"), "", "x86_64", later=True)
    now._begun = float("inf")  # the file is older than the server
    with pytest.raises(NotReady, match="is being read for the first time"):
        now.iso(path)
    before = now.state("")
    now.settle()
    assert now.iso(path).overlay.base.identity
    assert now.state("") != before
    other = Bases(path, str(tmp_path / "live.img"), "", "x86_64", later=True)
    other._begun = float("inf")
    other.settle("")
    assert other.iso(path).area
