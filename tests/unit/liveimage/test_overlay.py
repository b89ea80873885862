# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An overlay says the same bytes whichever way it is read: by slices, as a file, written, or from its descriptor."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Base, identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import (
    BaseRange,
    Bytes,
    Overlay,
    Zeros,
    materialise,
    open_overlay,
    read,
    whole,
)

CONTENT = bytes(range(256)) * 40


def base_of(content: bytes, folder: str) -> Base:
    path = os.path.join(folder, "base")
    Path(path).write_bytes(content)
    return identify(path)


@pytest.fixture
def base(tmp_path):
    return base_of(CONTENT, str(tmp_path))


patch_lists = st.lists(
    st.tuples(st.integers(0, 600), st.one_of(st.binary(max_size=40), st.integers(0, 40))), max_size=6
)


@settings(max_examples=150, deadline=None)
@given(st.binary(min_size=1, max_size=700), patch_lists, st.lists(st.binary(max_size=20), max_size=3), st.data())
def test_every_way_of_reading_gives_the_patched_bytes(content, patches, append, data):
    with tempfile.TemporaryDirectory() as folder:
        base = base_of(content, folder)
        expected, at, good = bytearray(content), 0, True
        for offset, patch in sorted(patches, key=lambda one: one[0]):
            new = patch if isinstance(patch, bytes) else bytes(patch)
            good = good and offset >= at and offset + len(new) <= len(content)
            at = offset + len(new)
            expected[offset : offset + len(new)] = new
        expected += b"".join(append)
        given_patches = [(offset, patch if isinstance(patch, bytes) else Zeros(patch)) for offset, patch in patches]
        if not good:
            with pytest.raises(ImageError, match=r"overlap|outside"):
                whole(base).patched(given_patches, append)
            return
        overlay = whole(base).patched(given_patches, append)
        assert overlay.size == len(expected)
        start = data.draw(st.integers(0, overlay.size))
        stop = data.draw(st.integers(start, overlay.size))
        assert read(Overlay(base, overlay.slice(start, stop)), 0, stop - start) == expected[start:stop]
        assert read(overlay, start, stop - start) == expected[start:stop]
        target = os.path.join(folder, "image")
        materialise(overlay, target)
        assert Path(target).read_bytes() == expected
        again = Overlay.from_dict(json.loads(json.dumps(overlay.to_dict())))
        assert again == overlay
        assert again.etag() == overlay.etag()


def test_the_tag_follows_the_content(base, tmp_path):
    one = whole(base).patched([(10, b"one")])
    assert one.etag() == whole(base).patched([(10, b"o"), (11, b"ne")]).etag()
    other = tmp_path / "other"
    other.mkdir()
    changed = base_of(CONTENT[:-1] + b"!", str(other))
    tags = {
        one.etag(),
        whole(base).etag(),
        whole(base).patched([(10, b"two")]).etag(),
        whole(base).patched([(11, b"one")]).etag(),
        whole(base).patched([(10, b"one")], [Zeros(1)]).etag(),
        whole(changed).patched([(10, b"one")]).etag(),
    }
    assert len(tags) == 6


def test_padding_costs_no_memory(base):
    overlay = whole(base).patched([(0, Zeros(5000))], [b"end"])
    assert overlay.own_bytes() == 3
    assert overlay.slice(100, 4900) == [Zeros(4800)]


def test_neighbours_of_a_kind_become_one():
    base = Base("/nowhere", 100, 0, "00")
    overlay = Overlay(
        base, [BaseRange(0, 10), BaseRange(10, 5), Bytes(b"a"), Bytes(b"b"), Zeros(1), Zeros(2), Bytes(b"")]
    )
    assert overlay.segments == (BaseRange(0, 15), Bytes(b"ab"), Zeros(3))


def test_a_range_outside_the_base_is_refused():
    with pytest.raises(ImageError, match="has 100 bytes, but bytes 90 to 101"):
        Overlay(Base("/nowhere", 100, 0, "00"), [BaseRange(90, 11)])


@pytest.mark.parametrize(
    "damage",
    [
        None,
        [],
        {},
        {"version": 2},
        {"version": 1},
        {"version": 1, "base": {"path": "/b", "size": "x", "mtime_ns": 0, "identity": ""}, "segments": []},
        {"version": 1, "base": {"path": "/b", "size": 9, "mtime_ns": 0, "identity": ""}, "segments": [[0, 10]]},
        {"version": 1, "base": {"path": "/b", "size": 9, "mtime_ns": 0, "identity": ""}, "segments": [[0, -1]]},
        {"version": 1, "base": {"path": "/b", "size": 9, "mtime_ns": 0, "identity": ""}, "segments": ["*"]},
        {"version": 1, "base": {"path": "/b", "size": 9, "mtime_ns": 0, "identity": ""}, "segments": [True]},
        {"version": 1, "base": {"path": "/b", "size": 9, "mtime_ns": 0, "identity": ""}, "segments": 3},
    ],
)
def test_a_damaged_descriptor_is_refused(damage):
    with pytest.raises(ImageError):
        Overlay.from_dict(damage)


def test_a_changed_base_is_noticed(base):
    assert base.unchanged()
    Path(base.path).write_bytes(CONTENT + b"more")
    assert not base.unchanged()
    os.unlink(base.path)
    assert not base.unchanged()


def test_the_same_file_keeps_its_identity(base):
    assert identify(base.path) == base
    os.utime(base.path, ns=(base.mtime_ns + 1, base.mtime_ns + 1))
    assert identify(base.path).identity == base.identity


@pytest.mark.parametrize(
    ("kind", "message"), [("folder", "neither|cannot be read"), ("absent", "cannot be read"), ("empty", "is empty")]
)
def test_what_is_no_base_is_refused(tmp_path, kind, message):
    path = tmp_path / "base"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    with pytest.raises(ImageError, match=message):
        identify(str(path))


def test_a_base_that_shrinks_while_it_is_read_is_an_error(base):
    with open_overlay(whole(base)) as file:
        os.truncate(base.path, 100)
        with pytest.raises(ImageError, match="became shorter"):
            file.read()


def test_a_base_that_changes_leaves_the_target_alone(base, tmp_path):
    target = tmp_path / "image"
    target.write_bytes(b"as it was")
    overlay = whole(base).patched([(0, b"new")])
    Path(base.path).write_bytes(CONTENT[:-1])
    with pytest.raises(ImageError, match=r"shorter|changed"):
        materialise(overlay, str(target))
    assert target.read_bytes() == b"as it was"
    assert {path.name for path in tmp_path.iterdir()} == {"base", "image"}


def test_a_target_that_cannot_be_written_is_named(base, tmp_path):
    with pytest.raises(ImageError, match=r"target .*/absent/image cannot be written"):
        materialise(whole(base), str(tmp_path / "absent" / "image"))
