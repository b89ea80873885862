# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on a dirty device after a write is the image, byte for byte; nothing bootable before its ends are put."""

from __future__ import annotations

import contextlib
import errno
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand import invocation
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.incoming import blocks
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.root_device import EDGE, Writer

GRAIN = 256 * 1024
DEVICE = 48 * GRAIN
OLD = b"\xaa" * DEVICE


def make(shape: list, rest: int) -> bytes:
    """Build an image out of pieces: zeros, data, or data with zeros around a single byte."""
    noise = random.Random(len(shape)).randbytes(GRAIN)
    kinds = {
        "zero": bytes(GRAIN),
        "data": noise,
        "thin": bytes(GRAIN - 1) + b"x",
        "half": bytes(GRAIN // 2) + noise[: GRAIN // 2],
    }
    return b"".join(kinds[kind] for kind in shape) + noise[:rest]


class Target:
    """A device as a file, full of old data; a file without a path is in memory, where many are quickly made."""

    def __init__(self, path=None):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT) if path else os.memfd_create("disk")
        os.pwrite(self.fd, OLD, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def read(self) -> bytes:
        return os.pread(self.fd, DEVICE + 1, 0)

    def ends(self) -> tuple[bool, bool]:
        """Whether anything but zeros is at its head and at its tail."""
        head, tail = (os.pread(self.fd, EDGE, place) for place in (0, DEVICE - EDGE))
        return head != bytes(EDGE), tail != bytes(EDGE)


SHAPES = st.lists(st.sampled_from(["zero", "data", "thin", "half"]), max_size=DEVICE // GRAIN - 1)


@given(shape=SHAPES, rest=st.integers(0, GRAIN), start=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_the_device_holds_the_image(shape, rest, start):
    image = make(shape, rest)
    with Target() as target:
        writer = Writer(target.fd, DEVICE)
        del writer.ways[:start]  # as on devices that cannot punch, or can do nothing but write
        writer.prepare()
        for block in blocks([image]):
            writer.write(block)
        head, place, tail = writer.finish()
        assert target.ends() == (False, False)
        writer.put(memoryview(head), 0)
        writer.put(memoryview(tail), place)
        found = target.read()
        assert found[: len(image)] == image
        beyond = found[max(len(image), EDGE) : -EDGE]
        assert beyond == OLD[: len(beyond)]
        assert len(found) == DEVICE


@given(shape=SHAPES)
@settings(max_examples=20, deadline=None)
def test_a_spoiled_device_has_neither_head_nor_tail(shape):
    with Target() as target:
        writer = Writer(target.fd, DEVICE)
        writer.prepare()
        for block in blocks([make(["data", *shape], 0)]):
            writer.write(block)
        writer.put(memoryview(writer.finish()[0]), 0)
        assert target.ends()[0]
        writer.spoil()
        assert target.ends() == (False, False)


def test_zeros_are_not_written(tmp_path):
    with Target(tmp_path / "disk") as target:
        writer = Writer(target.fd, DEVICE)
        writer.prepare()
        for block in blocks([make(["data"] * 4 + ["zero"] * 20 + ["data"] * 2, 0)]):
            writer.write(block)
        writer.put(memoryview(writer.finish()[0]), 0)
        assert writer.written == 6 * GRAIN
        assert os.fstat(target.fd).st_blocks * 512 < DEVICE - 18 * GRAIN


def test_an_image_larger_than_the_device_is_refused(tmp_path):
    with Target(tmp_path / "disk") as target:
        writer = Writer(target.fd, DEVICE)
        writer.prepare()
        *fitting, last = blocks([b"x" * (DEVICE + 1)])
        for block in fitting:
            writer.write(block)
        with pytest.raises(Refused, match=str(DEVICE)):
            writer.write(last)


class Broken:
    """A disk that was written in part, and fails from some moment on."""

    path, touched = "/dev/sda", True

    def __init__(self, takes_zeros: bool) -> None:
        self.takes_zeros = takes_zeros

    @contextlib.contextmanager
    def locked(self):
        yield

    def spoil(self):
        if not self.takes_zeros:
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("takes_zeros", "outcome"),
    [(True, "/dev/sda was made unbootable again"), (False, "/dev/sda could not be made unbootable again")],
)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_with_bad_sectors_is_one_reason_with_a_way_out(
    capsys, tmp_path, monkeypatch, takes_zeros, outcome, number
):
    monkeypatch.setattr(invocation, "workplace", contextlib.nullcontext)
    monkeypatch.setattr(invocation.signal, "signal", lambda *_given: None)

    def install(_url, _bootstrap, _machine, _devices, progress, _token):
        with invocation.writing(Broken(takes_zeros), progress):
            raise OSError(number, os.strerror(number))

    arguments = ["https://i.example/x", str(tmp_path / "bootstrap.data"), "node-1", "sda"]
    assert invocation.run_program("image-url-command-x", install, arguments) == 1
    said = capsys.readouterr().err
    assert said.endswith(f"; {outcome}\n")
    assert ("root device /dev/sda: reading or writing it failed" in said) is (number == errno.EIO)
    assert ("have the disk replaced" in said) is (number == errno.EIO)
    assert os.strerror(number) in said
