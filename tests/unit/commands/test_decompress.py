# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every format comes out as it went in, in pieces of any size; cut or damaged data never comes out as whole."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.incoming import (
    blocks,
    compression,
    decompress,
    unzstd,
    zstd_size,
)


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-c", "-q", "--check"], input=data, capture_output=True, check=True).stdout


PACK = {"none": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}
COMPRESSED = [name for name in PACK if name != "none"]
CONTENT = st.one_of(
    st.binary(min_size=1, max_size=3000),
    st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 400_000)).map(lambda pair: pair[0] * pair[1]),
).filter(lambda data: len(data) <= 9 << 20)


def pieces(data: bytes, sizes: list) -> list:
    """Cut data into pieces of the sizes, over and over."""
    cut, at = [], 0
    while at < len(data):
        step = sizes[len(cut) % len(sizes)]
        cut.append(data[at : at + step])
        at += step
    return cut


def unpack(data: bytes, sizes=(7001,), name="") -> bytes:
    return b"".join(decompress(iter(pieces(data, list(sizes))), name or compression(data)))


SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=5)


@pytest.mark.parametrize("name", PACK)
@given(content=CONTENT, sizes=SIZES)
@settings(max_examples=25, deadline=None)
def test_round_trip(name, content, sizes):
    assert unpack(PACK[name](content), [size + 400 for size in sizes], name) == content


@pytest.mark.parametrize("name", COMPRESSED)
@given(contents=st.lists(CONTENT, min_size=2, max_size=4), sizes=SIZES)
@settings(max_examples=10, deadline=None)
def test_several_members(name, contents, sizes):
    packed = b"".join(PACK[name](content) for content in contents)
    assert compression(packed) == name
    assert unpack(packed, [size + 400 for size in sizes]) == b"".join(contents)


@pytest.mark.parametrize("name", ["gz", "xz"])
def test_padding_behind_the_last_member(name):
    assert unpack(PACK[name](b"x" * 100) + b"\0" * 8192, [50]) == b"x" * 100


@pytest.mark.parametrize("name", COMPRESSED)
@given(content=CONTENT, data=st.data())
@settings(max_examples=25, deadline=None)
def test_truncated(name, content, data):
    packed = PACK[name](content)
    kept = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(Refused, match="truncated"):
        unpack(packed[:kept], name=name)


@pytest.mark.parametrize("name", COMPRESSED)
def test_garbage_behind_the_image(name):
    with pytest.raises(Refused, match="damaged"):
        unpack(PACK[name](b"image" * 100) + b"garbage and more of it")


@pytest.mark.parametrize("name", COMPRESSED)
@given(place=st.floats(0.1, 0.9))
@settings(max_examples=15, deadline=None)
def test_a_changed_byte(name, place):
    packed = bytearray(PACK[name](bytes(range(256)) * 64))
    packed[int(len(packed) * place)] ^= 0x5A
    with pytest.raises(Refused, match=r"damaged|truncated"):
        unpack(bytes(packed), name=name)


@pytest.mark.parametrize("name", PACK)
def test_the_reason_of_a_broken_source_is_kept(name):
    def broken():
        yield PACK[name](b"image" * 1000)[:40]
        raise Refused("the cable was cut")

    with pytest.raises(Refused, match="the cable was cut"):
        list(decompress(broken(), name))


def test_a_window_larger_than_the_memory_is_refused():
    packed = subprocess.run(
        ["zstd", "-c", "-q", "--long=30", "--ultra", "-1"], input=b"ab" * (140 << 19), capture_output=True, check=True
    ).stdout
    with pytest.raises(Refused, match="memory"):
        list(unzstd([packed], 128 << 20))
    assert sum(map(len, unzstd([packed], 1 << 30))) == 140 << 20


@given(size=st.integers(1, 200_000))
@settings(max_examples=30, deadline=None)
def test_size_in_the_zstd_header(size):
    known = subprocess.run(
        ["zstd", "-c", "-q", f"--stream-size={size}"], input=b"x" * size, capture_output=True, check=True
    ).stdout
    assert zstd_size(known + bytes(18)) == size
    unknown = zstd(b"x" * size)
    assert zstd_size(unknown + bytes(18)) is None


@given(sizes=st.lists(st.integers(1, 5000), max_size=20), size=st.integers(1, 3000))
def test_blocks(sizes, size):
    data = b"".join(bytes([n % 256]) * length for n, length in enumerate(sizes))
    cut = list(blocks(iter(pieces(data, sizes or [1])), size))
    assert b"".join(cut) == data
    assert all(len(block) == size for block in cut[:-1])
