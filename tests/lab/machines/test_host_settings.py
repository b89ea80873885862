# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What labs change on their host is given back as it was."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.machines import loop
from lab.machines.host_commands import HostSettings
from lab.machines.loop import Loop

#: Devices for others below that of a test.
_STEP = 5
_ADD, _REMOVE = 0x4C80, 0x4C81  # LOOP_CTL_ADD, LOOP_CTL_REMOVE


def test_the_first_value_is_kept_over_all_changes(tmp_path: Path) -> None:
    setting = tmp_path / "max_things"
    setting.write_text("128\n")
    one, other = HostSettings(tmp_path / "host"), HostSettings(tmp_path / "host")
    assert one.all() == {}
    assert one.give_back(setting) is None
    one.change(setting, "8192")
    other.change(setting, "9000")
    assert setting.read_text() == "9000"
    assert other.all() == {setting: "128"}
    assert one.give_back(setting, unless=lambda: True) is None
    assert setting.read_text() == "9000"
    assert one.give_back(setting) == "128"
    assert setting.read_text() == "128"
    assert other.give_back(setting) is None


def test_a_value_that_is_right_already_is_nobodys_debt(tmp_path: Path) -> None:
    setting = tmp_path / "mode"
    setting.write_text("write through\n")
    settings = HostSettings(tmp_path / "host")
    settings.change(setting, "write through")
    assert settings.all() == {}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    """A loop device that was never used; the lab takes this one."""
    if os.geteuid() != 0:
        pytest.fail("loop devices need root; run as root, or leave these tests out with -m 'not root'")
    monkeypatch.setenv("KUBENODE_LAB_HOST_DIR", str(tmp_path / "host"))
    number = 3000 + os.getpid() % 50000 * _STEP
    # The kernel gives the lowest free device to who asks for one; labs of other tests shall not be given this one.
    numbers = range(number - _STEP + 1, number + 1)
    with open("/dev/loop-control", "rb") as control:
        for one in numbers:
            fcntl.ioctl(control, _ADD, one)
        monkeypatch.setattr(loop, "_free", lambda _control: number)
        yield number
        for one in numbers:
            with contextlib.suppress(OSError):  # in use by another lab, or gone
                fcntl.ioctl(control, _REMOVE, one)


def _modes(number: int, file: Path) -> dict[str, str]:
    """How the device behaves for the next user of it."""
    device = f"/dev/loop{number}"
    subprocess.run(["losetup", device, file], check=True)
    folder = Path(f"/sys/block/loop{number}")
    settings = ("queue/write_cache", "queue/read_ahead_kb", "ro", "loop/dio", "loop/autoclear", "loop/partscan")
    found = {name: (folder / name).read_text().strip() for name in settings}
    subprocess.run(["losetup", "--detach", device], check=True)
    return found


@pytest.mark.root
def test_a_loop_device_is_given_back_as_it_was(device: int, tmp_path: Path) -> None:
    file = tmp_path / "disk.raw"
    with file.open("wb") as disk:
        disk.truncate(1 << 20)
    before = _modes(device, file)
    assert before["queue/write_cache"] == "write back"
    taken = Loop(file)
    assert taken.number == device
    assert Path(f"/sys/block/loop{device}/queue/write_cache").read_text() == "write through\n"
    subprocess.run(["blockdev", "--setro", taken.device], check=True)  # as a guest may do
    taken.close()
    assert _modes(device, file) == before
    assert HostSettings().all() == {}


@pytest.mark.root
def test_a_device_of_a_lab_that_died_is_given_back_when_it_is_free(device: int, tmp_path: Path) -> None:
    file = tmp_path / "disk.raw"
    with file.open("wb") as disk:
        disk.truncate(1 << 20)
    before = _modes(device, file)
    taken = Loop(file)
    assert loop.give_back() == ([], [f"loop{device}"]), "its lab still uses it"
    taken.hand_over()  # nothing holds it: as when the process was killed
    assert loop.give_back() == ([f"loop{device}"], [])
    assert _modes(device, file) == before
