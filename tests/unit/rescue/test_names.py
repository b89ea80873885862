# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of commands, machines and devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


@pytest.mark.parametrize("name", ["image-url-command-raw-disk", "image-url-command-1", "image-url-command-a.b_c-d"])
def test_command_names_that_are_taken(name):
    assert options.check_command_name(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "does not begin with"),
        ("raw-disk", "does not begin with 'image-url-command-'"),
        ("image-url-command-", "may hold only lower-case letters"),
        ("image-url-command--x", "must begin with a letter or digit"),
        ("image-url-command-X", "lower-case"),
        ("image-url-command-a b", "may hold only"),
        ("image-url-command-a\n", "may hold only"),
        ("image-url-command-a..b", "holds '..'"),
        ("../image-url-command-a", "holds a '/'"),
        ("/shared/image-url-command-a", "holds a '/'"),
    ],
)
def test_command_names_that_are_refused(name, why):
    with pytest.raises(options.InvalidName) as refusal:
        options.check_command_name(name)
    assert why in str(refusal.value)


@given(st.text(max_size=20))
def test_a_command_name_that_is_taken_is_the_name_of_a_file(text):
    try:
        options.check_command_name("image-url-command-" + text)
    except options.InvalidName:
        return
    assert text.isascii()
    assert not set(text) & set("/\\ \t\n\x00'\"$`;|&<>*?()")


@pytest.mark.parametrize("devices", [["sda"], ["nvme0n1", "nvme1n1"], ["0x5000c500a1b2c3d4"], ["eui.0025388b11b2a1f4"]])
def test_devices_that_are_taken(devices):
    assert options.check_root_devices(devices) == devices


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ([], "the list is empty"),
        (["/dev/sda"], "holds a '/'"),
        (["sda sdb"], "not a device name"),
        ([""], "not a device name"),
        (["-rf"], "not a device name"),
        (["sda\n"], "not a device name"),
        (["sda", "sda"], "named twice"),
        (["sda1"], "'sda1' is a partition; name the disk it is on"),
        (["nvme0n1p2"], "is a partition"),
        (["nvme-eui.0025388b11b2a1f4-part1"], "is a partition"),
    ],
)
def test_devices_that_are_refused(devices, why):
    with pytest.raises(options.InvalidName) as refusal:
        options.check_root_devices(devices)
    assert why in str(refusal.value)


@pytest.mark.parametrize("name", ["write", "Write_2.sh", "image-url-command-Loud"])
def test_any_plain_name_is_taken_where_that_was_said(name):
    assert options.check_command_name(name, options.ANY) == name
    with pytest.raises(options.InvalidName):
        options.check_command_name(name)


@pytest.mark.parametrize("name", ["", "-x", ".hidden", "a/b", "..", "a b", "a\nb", "ä"])
def test_a_name_that_is_none_is_refused_always(name):
    with pytest.raises(options.InvalidName):
        options.check_command_name(name, options.ANY)
