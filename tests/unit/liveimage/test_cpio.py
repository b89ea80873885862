# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives are read back, and their limits; fuzz/ has what is damaged."""

from __future__ import annotations

import gzip
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

NAME = st.text("abcDEF019._-", min_size=1, max_size=12).filter(lambda part: part.strip("."))
NAMES = st.lists(NAME, min_size=1, max_size=3).map("/".join)


def prefix_free(files):
    names = set(files)
    return not any(other.startswith(name + "/") for name in names for other in names)


FILES = st.dictionaries(NAMES, st.binary(max_size=300), max_size=6).filter(prefix_free)


def plain(data):
    return {member.name: member.data for member in cpio.members(data) if member.mode & 0o170000 == 0o100000}


@settings(max_examples=60, deadline=None)
@given(FILES, st.sampled_from(cpio.COMPRESSIONS))
def test_what_goes_in_comes_out(files, compression):
    packed = cpio.archive(files, compression)
    assert plain(packed) == files
    assert packed == cpio.archive(dict(reversed(list(files.items()))), compression)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(FILES, st.sampled_from(cpio.COMPRESSIONS), st.integers(0, 9)), max_size=4))
def test_archives_may_follow_one_another_with_zeros_between(parts):
    data, expected = b"", {}
    for files, compression, zeros in parts:
        data += bytes(cpio.aligned(len(data))) + cpio.archive(files, compression) + bytes(4 * zeros)
        expected.update(files)
    assert plain(data) == expected


def test_a_bomb_is_refused():
    bomb = gzip.compress(bytes(80 * 1024 * 1024), 1)
    with pytest.raises(ImageError, match="more than 67108864 bytes"):
        list(cpio.members(bomb))


def test_a_chain_of_archives_has_the_limit_of_one():
    part = gzip.compress(bytes(40 * 1024 * 1024), 1)
    with pytest.raises(ImageError, match="more than 67108864 bytes"):
        list(cpio.members(part + part))


def test_zstd_is_named():
    with pytest.raises(ImageError, match="zstd"):
        list(cpio.members(b"\x28\xb5\x2f\xfd" + bytes(20)))


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../b", "", "a//b", "./a"])
def test_names_stay_inside(name):
    with pytest.raises(ImageError, match=r"no plain relative path|not a plain relative path"):
        cpio.archive({name: b""})


def test_packed_as_kernels_read_it():
    files = {"config.ign": b"{}"}
    # no name, no time, and no byte that one Python writes and another one does not
    assert cpio.archive(files, "gzip")[:10] == b"\x1f\x8b\x08" + bytes(5) + b"\x02\x03"
    assert gzip.decompress(cpio.archive(files, "gzip")) == cpio.archive(files, "none")
    assert cpio.archive(files, "xz")[6:8] == b"\x00\x01"  # CRC32
    assert lzma.decompress(cpio.archive(files, "xz")) == cpio.archive(files, "none")
