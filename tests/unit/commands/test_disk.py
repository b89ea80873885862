# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel says of partitions, while udev or a scan takes some of them away; which image is a raw disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand import root_device as disk
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.raw_disk import check_head
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.root_device import (
    KernelPartition,
    entries,
    kernel_partitions,
)


def partition(folder, name, **attributes):
    """Make the sysfs folder of a partition, as it is now or as it is half gone."""
    (folder / name).mkdir(parents=True)
    for attribute, value in attributes.items():
        (folder / name / attribute).write_text(f"{value}\n")


def test_partitions_come_in_the_order_of_their_place(tmp_path):
    partition(tmp_path, "sda1", partition=1, start=4096, size=8192, dev="8:1")
    partition(tmp_path, "sda14", partition=14, start=2048, size=2048, dev="8:14")
    partition(tmp_path, "queue", logical_block_size=512)
    assert kernel_partitions(tmp_path) == {
        14: KernelPartition(2048, 2048, "8:14", tmp_path / "sda14"),
        1: KernelPartition(4096, 8192, "8:1", tmp_path / "sda1"),
    }
    assert list(kernel_partitions(tmp_path)) == [14, 1]


def test_a_partition_that_goes_while_we_look_is_none(tmp_path):
    partition(tmp_path, "sda1", partition=1, start=2048, size=2048, dev="8:1")
    partition(tmp_path, "sda2", partition=2)
    assert list(kernel_partitions(tmp_path)) == [1]


def test_a_disk_that_goes_has_no_entries(tmp_path):
    assert entries(tmp_path / "holders") == []


EXTENTS = st.dictionaries(st.integers(1, 5), st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=5)


@given(EXTENTS, EXTENTS)
def test_changes_make_the_partitions_present_those_wanted(present, wanted):
    kernel = dict(present)
    for _round in range(2):  # a partition that begins elsewhere is deleted first and added when asked again
        for operation, number, extent in disk.changes(kernel, wanted):
            if operation == disk.DELETE:
                del kernel[number]
            elif operation == disk.ADD:
                assert number not in kernel
                kernel[number] = extent
            else:
                assert kernel[number][0] == extent[0]
                kernel[number] = extent
    assert kernel == wanted
    assert disk.changes(kernel, wanted) == []


HEAD = bytes(510) + b"\x55\xaa"


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (b"QFI\xfb" + HEAD[4:], "qcow2"),
        (b"<!DOCTYPE html><html>", "error page"),
        (bytes(257) + b"ustar" + bytes(600), "tar"),
        (bytes(4096), "55 AA"),
        (b"", "55 AA"),
        (HEAD + bytes(3584) + b"EFI PART", "4096-byte sectors"),
    ],
)
def test_what_is_no_raw_disk(head, named):
    with pytest.raises(Refused, match=named):
        check_head(head, 512)


def test_what_is_a_raw_disk():
    check_head(HEAD + b"EFI PART", 512)
    check_head(HEAD + bytes(3584) + b"EFI PART", 4096)
    with pytest.raises(Refused, match="512-byte sectors"):
        check_head(HEAD + b"EFI PART", 4096)
