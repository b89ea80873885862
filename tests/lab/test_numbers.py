# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers in what clients send, at every place where the lab reads one."""

import re

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from lab import nodes
from lab.api import cloud_project, http, schemas
from lab.api.http import _positive
from lab.api.schemas import ApiError
from lab.errors import LabError
from lab.installimage.emulator import config
from lab.machines import disks
from lab.robot import model
from tests.unit.common import odd


def wanted(text: str) -> int | None:
    """The number by the rule: at most 19 ASCII digits."""
    return int(text) if re.fullmatch("[0-9]{1,19}", text) and int(text) < 1 << 63 else None


@odd.examples()
@given(odd.texts)
def test_a_number_is_ascii_digits_or_nothing(text):
    assert schemas.whole_number(text) == cloud_project.as_id(text) == wanted(text)


@odd.examples("0M", "8G", "1T", "M", "", "1MM", "1m")
@given(odd.texts | st.builds("{}{}".format, odd.texts, st.sampled_from("MGT")))
def test_a_size_is_a_number_with_or_without_a_unit(text):
    shift = {"M": 20, "G": 30, "T": 40}.get(text[-1:], 0)
    number = wanted(text[:-1] if shift else text)
    try:
        assert nodes._bytes(text) == number << shift
    except LabError:
        assert number is None


@odd.examples()
@given(odd.texts)
def test_a_page_is_a_number_or_refused(text):
    try:
        assert _positive({"page": text}, "page", 1) == wanted(text)
    except ApiError as error:
        assert error.status == 422
        assert not wanted(text)


@pytest.mark.parametrize("text", odd.WORDS)
def test_an_id_of_a_path_is_one_or_names_nothing(text):
    request = make_mocked_request("GET", "/", match_info={"id": text})
    assert http.identifier(request) == -1


@pytest.mark.parametrize("text", [text for text in odd.NUMBERS if text])
def test_sizes_that_are_none_are_refused(text):
    assert isinstance(config.size(text), str)
    for size in (text, text + "G"):
        with pytest.raises(ValueError):
            model.size(size)
        with pytest.raises(LabError):
            nodes._bytes(size)


def test_partitions_of_disks_whose_names_end_with_a_digit():
    assert [disks.partition_name(disk, 1) for disk in ("sda", "nvme0n1")] == ["sda1", "nvme0n1p1"]
