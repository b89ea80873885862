# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that tools, disks and hints give: ASCII digits, or none."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import source
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.tree import NotPacked
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import (
    disk_facts,
    disk_gather,
    disk_names,
    disk_tools,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import processes
from tests.unit.common import odd
from tests.unit.disks import recorded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | odd.texts,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@odd.examples(float("inf"), float("nan"), 10**400, -1, True, 1.5, "²", "9" * 5000, "1_000")
@given(JSON)
def test_a_size_is_a_number_or_nothing(value):
    number = disk_tools.number(value)
    assert 0 <= number < 1 << 63
    if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
        assert number == int(value)
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        assert number == value
    else:
        assert number == 0 or isinstance(value, str)
    nodes = disk_tools.block_devices(json.dumps({"blockdevices": [{"kname": "sda", "size": value}]}))
    assert list(nodes) == ["sda"]
    disk_tools.size_words(nodes["sda"].size)


@odd.examples("Infinity", "-Infinity", "NaN", "1e999", "true", '"²"', "-1", '{"value": "0x1"}', "9" * 400, "[")
@given(JSON.map(json.dumps))
def test_the_health_of_an_nvme_disk_is_known_or_unknown(text):
    found = disk_tools.nvme_log(0, f'{{"critical_warning": {text}}}')
    assert found["status"] in ("passed", "failed", "unknown")
    if text in ("Infinity", "-Infinity", "NaN", "1e999", "true", '"²"', "-1", '{"value": "0x1"}', "9" * 400, "["):
        assert found["status"] == "unknown"


@odd.examples("447\u212a", "1\u212aiB", "9" * 5000, "٣G", "1_0G", "+1G", "1G\n", "480 GB", "1.5TiB")
@given(odd.texts)
def test_a_size_of_a_hint_is_one_or_refused(text):
    try:
        size = disk_names.size_of(text)
    except disk_names.HintError:
        return
    assert text.strip().isascii()
    assert size > 0


@pytest.mark.parametrize("text", ["447\u212a", "9" * 5000, "٣G", "²G", "1_000", "+5", "1e9", "nan", "0"])
def test_sizes_that_are_none(text):
    with pytest.raises(disk_names.HintError):
        disk_names.size_of(text)


@example("Type:")
@example("Type: regular Size:")
@given(st.text(max_size=40))
def test_any_description_of_a_file_is_judged(text):
    assert disk_gather._is_small_file(text) is False


@pytest.mark.parametrize("size", ["65536", "0", *odd.WORDS, "65537"])
def test_only_a_small_file_is_read(size):
    text = f"Inode: 12   Type: regular    Mode:  0644   Flags: 0x0\nUser:     0   Group:     0   Size: {size}\n"
    assert disk_gather._is_small_file(text) is (size in ("65536", "0"))
    assert not disk_gather._is_small_file(text.replace("regular", "FIFO"))


@pytest.mark.parametrize("total", odd.WORDS)
def test_a_raid_whose_size_is_no_number_is_not_started(total):
    if total.isascii() and total.isdigit():
        return
    raw = disk_facts.Raw(
        recorded.lsblk(recorded.nvme(0)),
        blkid={"nvme0n1": recorded.content("linux_raid_member", "raid", recorded.ARRAY)},
        md={"nvme0n1": f"MD_LEVEL=raid1\nMD_UUID=x\nMD_DEVICES={total}\n"},
    )
    calls = []
    assert not disk_gather._assemble(lambda *argv: calls.append(argv) or (0, "", ""), raw)
    assert calls == []
    (found,) = disk_facts.facts(raw)
    assert " of " not in found["holds"][0]["detail"]


def test_only_processes_have_numbers_for_names(tmp_path):
    for name in ("²", "٣", "self", "9" * 300):
        (tmp_path / "proc" / name[:200]).mkdir(parents=True)
    processes.kill_below(str(tmp_path), str(tmp_path / "proc"))


class Disk(source.Disk):
    """A disk whose tools print what a test says."""

    def __init__(self, printed: dict) -> None:
        self.path, self._printed = "/dev/sda", printed
        self._tools = lambda *argv, **_options: (0, printed[next(word for word in argv if word in printed)], "")


@pytest.mark.parametrize("text", [*odd.WORDS, "9" * 19])
@pytest.mark.parametrize("field", ["PART_ENTRY_OFFSET", "PART_ENTRY_SIZE", "PART_ENTRY_NUMBER"])
def test_a_partition_that_has_no_place_is_not_packed(field, text):
    listing = json.dumps({"blockdevices": [{"path": "/dev/sda1", "type": "part"}]})
    with pytest.raises(NotPacked):
        Disk({"lsblk": listing, "blkid": f"{field}={text}\n"})._partitions()


@pytest.mark.parametrize("text", [text for text in odd.WORDS if text != "9" * 20])
def test_a_file_system_of_unknown_size_is_not_packed(text):
    image = source.RawImage.__new__(source.RawImage)
    image._epoch = 0
    for blocks, size in (("5", text), (text, "4096")):
        image._disk = Disk({"e2fsck": "", "resize2fs": f"Estimated minimum size: {blocks}\n",
                            "dumpe2fs": f"Block size: {size}\n"})  # fmt: skip
        image._root = source.Partition("/dev/sda1", 1, {}, 0, 1 << 40)
        with pytest.raises(NotPacked):
            image._shrink()
