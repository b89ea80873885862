# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a config to partition tables and arrays, and the config that the command line alone means."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.installimage.emulator import config, storage
from lab.installimage.emulator.main import config_of_options, parse_options
from lab.installimage.emulator.storage import MIB

_GIB = 1 << 30


def _plan(*lines: str, size: int = 8 * _GIB, uefi: bool = False) -> tuple[config.Config, storage.Layout]:
    read = config.parse("\n".join(lines))
    return read, storage.plan(read, size, uefi)


def test_bios_and_few_partitions_get_an_mbr() -> None:
    _read, found = _plan("DRIVE1 /dev/sda", "PART swap swap 1G", "PART / ext4 all")
    assert found.table().splitlines() == [
        "label: dos",
        "unit: sectors",
        f"1: start={MIB}, size={1024 * MIB}, type=82",
        f"2: start={1025 * MIB}, size={(8192 - 1025 - 1) * MIB}, type=83",
    ]


@pytest.mark.parametrize(
    ("lines", "size", "uefi", "loader"),
    [
        (["PART /boot/efi esp 256M", "PART / ext4 all"], 8 * _GIB, True, False),
        (["PART / ext4 all"], 3 << 40, False, True),
        (["PART / ext4 all", "FORCE_GPT 1"], 8 * _GIB, False, True),
        (["PART /a ext4 1G", "PART /b ext4 1G", "PART / ext4 2G", "PART /c ext4 all"], 8 * _GIB, False, True),
    ],
)
def test_gpt_and_room_for_the_boot_loader_where_a_bios_needs_it(
    lines: list[str], size: int, uefi: bool, loader: bool
) -> None:
    _read, found = _plan("DRIVE1 /dev/sda", *lines, size=size, uefi=uefi)
    assert found.gpt
    assert [one.kind for one in found.partitions].count("bios_grub") == loader
    parts = [one for one in found.partitions if one.kind != "bios_grub"]
    assert parts[0].start == 2 * MIB
    assert parts[-1].start + parts[-1].length == size // 512 - MIB


def test_what_firmware_and_boot_loader_read_is_mirrored_and_the_rest_striped() -> None:
    read, found = _plan(
        *("DRIVE1 /dev/sda", "DRIVE2 /dev/sdb", "DRIVE3 /dev/sdc", "SWRAID 1", "SWRAIDLEVEL 5"),
        *("PART /boot/efi esp 256M", "PART /boot ext3 512M", "PART swap swap 1G", "PART / ext4 10G"),
        uefi=True,
    )
    arrays = storage.arrays(read, found)
    assert [(one.name, one.level, one.metadata) for one in arrays] == [
        ("/dev/md/0", "1", "1.0"),
        ("/dev/md/1", "1", "1.2"),
        ("/dev/md/2", "1", "1.2"),
        ("/dev/md/3", "5", "1.2"),
    ]
    assert [one.length // MIB for one in found.partitions] == [256, 512, 1024, 5120]
    assert [one.kind for one in found.partitions] == ["esp", "raid", "raid", "raid"]


@given(
    sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=6),
    everything=st.booleans(),
    uefi=st.booleans(),
    gib=st.integers(2, 64),
)
def test_partitions_never_overlap_nor_leave_the_drive(sizes: list[int], everything: bool, uefi: bool, gib: int) -> None:
    lines = [f"PART /m{number} ext4 {size}M" for number, size in enumerate(sizes)]
    if sum(sizes) > gib * 1024 - 1100:  # refused before it is laid out
        return
    _read, found = _plan(*lines, *(["PART / ext4 all"] if everything else []), size=gib * _GIB, uefi=uefi)
    ends = MIB
    for one in sorted(found.partitions, key=lambda one: one.start):
        assert one.start >= ends
        assert one.start % MIB == 0
        assert one.length > 0
        ends = one.start + one.length
    assert ends <= gib * _GIB // 512 - MIB


def test_options_alone_make_a_config() -> None:
    chosen = parse_options(
        ["-a", "-n", "node1", "-r", "yes", "-l1", "-d", "sda,sdb", "-p", "/boot:ext3:512M,lvm:vg0:all"]
        + ["-v", "vg0:root:/:ext4:all", "-i", "x"]
    )
    assert chosen.automatic
    read = config.parse(config_of_options(chosen, "/i/Debian-1200-bookworm-amd64-base.tar.zst", 4096, uefi=False))
    assert read.drives == ["/dev/sda", "/dev/sdb"]
    assert (read.raid, read.level, read.hostname) == (True, "1", "node1")
    assert [(part.mount, part.filesystem, part.size) for part in read.parts] == [
        ("/boot", "ext3", 512),
        ("lvm", "vg0", "all"),
    ]
    assert read.logical_volumes[0].mount == "/"


def test_options_without_partitions_get_the_usual_ones() -> None:
    chosen = parse_options(["-a", "-d", "sda"])
    read = config.parse(config_of_options(chosen, "/i/Debian-1200-bookworm-amd64-base.tar.zst", 4096, uefi=True))
    assert [part.mount for part in read.parts] == ["/boot/efi", "swap", "/boot", "/"]
    assert read.hostname == "Debian-1200-bookworm-amd64-base"
    assert not read.raid


def test_letters_are_read_as_getopts_does() -> None:
    chosen = parse_options(["-ac", "file", "-q", "-n"])
    assert chosen.automatic
    assert chosen.get("c") == "file"
    assert chosen.complaints == ["illegal option -- q", "option requires an argument -- n"]


def test_what_is_encrypted_is_opened_and_named_in_crypttab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read, found = _plan("DRIVE1 /dev/sda", "PART /boot ext4 1G", "PART lvm vg0 all crypt", "CRYPTPASSWORD not in argv")
    done: list[tuple[tuple[str, ...], str | None]] = []

    def run(*command: str, text: str | None = None, check: bool = True) -> str:
        done.append((command, text))
        return "1-2-3\n" if command[0] == "blkid" else ""

    monkeypatch.setattr(storage.rescue_host, "run", run)
    monkeypatch.setattr(storage.rescue_host, "settle", lambda: None)
    made = storage.Storage(read, found, [], tmp_path)
    made.find_volumes()
    made.encrypt()
    assert made.crypttab == "luks-1-2-3 UUID=1-2-3 none luks\n"
    assert [volume.device for volume in made.volumes] == ["/dev/sda1", "/dev/mapper/luks-1-2-3"]
    assert [text for command, text in done if command[0] == "cryptsetup"] == ["not in argv\n"] * 2
    assert not any("not in argv" in word for command, _text in done for word in command)


@pytest.mark.parametrize(
    ("preserve", "removed", "erased"),
    [("", ["a", "data1"], ["/dev/sda", "/dev/sdb", "/dev/sdc"]), ("^(data1)$", ["a"], ["/dev/sda", "/dev/sdc"]),
     ("data", ["a"], ["/dev/sda", "/dev/sdc"]), ("x*", [], [])],
)  # fmt: skip
def test_groups_are_kept_by_an_expression_found_anywhere(
    monkeypatch: pytest.MonkeyPatch, preserve: str, removed: list[str], erased: list[str]
) -> None:
    """A physical volume of no group has an empty name, which few expressions are found in."""
    done: list[tuple[str, ...]] = []

    def run(*command: str, check: bool = True) -> str:
        done.append(command)
        return {"vgs": "  a\n  data1\n", "pvs": "  /dev/sda a\n  /dev/sdb data1\n  /dev/sdc\n"}.get(command[0], "")

    monkeypatch.setattr(storage.rescue_host, "run", run)
    storage.remove_volume_groups(preserve)
    assert [command[-1] for command in done if command[0] == "vgremove"] == removed
    assert [command[-1] for command in done if command[0] == "pvremove"] == erased
