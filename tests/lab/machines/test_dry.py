# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dry machines: power states, boot decisions and disks; no root needed."""

import hashlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.machines.backend import KINDS, Backend, best_kind, open_backend
from lab.machines.base import FromDisk
from tests.lab.machines.guest import Bench, DiskSpec, Key, bench, dedicated


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    opened = await open_backend("dry", "test", tmp_path / "site")
    yield opened
    await opened.close()


@pytest.fixture
def one(backend: Backend, key: Key) -> Bench:
    return bench(backend, key, 1, disk_bytes=1 << 20)


async def test_firmware_is_asked_once_per_boot(one: Bench) -> None:
    await one.start()
    await one.machine.power_on()
    assert one.boots == [one.rescue()]
    one.arm(FromDisk())
    await one.machine.request_reboot()
    await one.machine.reset()
    assert one.boots == [one.rescue(), FromDisk(), FromDisk()]
    assert one.machine.running
    assert "disk" in one.machine.console()


async def test_power_button_switches_off_and_tells(one: Bench) -> None:
    await one.machine.create(None)
    await one.machine.press_power_button()
    assert not one.switched_off.is_set()
    await one.machine.power_on()
    await one.machine.press_power_button()
    assert one.switched_off.is_set()
    assert not one.machine.running


async def test_cut_power_sends_no_event(one: Bench) -> None:
    await one.start()
    await one.machine.cut_power()
    assert not one.machine.running
    assert not one.switched_off.is_set()


async def test_disk_keeps_its_bytes_through_copy_and_create(
    one: Bench, backend: Backend, key: Key, tmp_path: Path
) -> None:
    image = tmp_path / "image.raw"
    with image.open("wb") as file:
        file.write(b"first")
        file.seek(600_000)
        file.write(random.Random(1).randbytes(4096))
    await one.machine.create(image)
    snapshot = tmp_path / "snapshot.raw"
    allocated = await one.machine.copy_disk(snapshot)
    assert snapshot.stat().st_size == 1 << 20
    assert snapshot.read_bytes().rstrip(b"\0") == image.read_bytes().rstrip(b"\0")
    assert 0 < allocated < 1 << 20
    two = bench(backend, key, 2, disk_bytes=2 << 20)
    await two.machine.create(snapshot)
    await two.machine.write_disk(None)
    assert await two.machine.copy_disk(tmp_path / "empty.raw") == 0


async def test_every_disk_is_a_disk_of_its_own(backend: Backend, key: Key, tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(b"system")
    one = dedicated(backend, key, 1, (DiskSpec(1 << 20, "nvme"), DiskSpec(2 << 20, "sata")))
    await one.machine.create(image)
    assert [disk.kind for disk in one.machine.disks] == ["nvme", "sata"]
    assert all(disk.serial and disk.wwn and disk.model for disk in one.machine.disks)
    written = hashlib.sha256(b"system".ljust(1 << 20, b"\0")).hexdigest()
    empty = hashlib.sha256(bytes(2 << 20)).hexdigest()
    assert [await one.machine.disk_digest(index) for index in (0, 1)] == [written, empty]
    await one.machine.power_on()
    await one.machine.ctrl_alt_del()
    assert one.boots == [one.rescue()] * 2
    assert [await one.machine.disk_digest(index) for index in (0, 1)] == [written, empty]
    await one.machine.destroy()
    assert list(backend.disks.iterdir()) == []


async def test_image_larger_than_the_disk_is_refused(one: Bench, tmp_path: Path) -> None:
    image = tmp_path / "large.raw"
    image.write_bytes(b"x" * (2 << 20))
    with pytest.raises(LabError, match="2097152 bytes, more than the disk of 1048576"):
        await one.machine.create(image)


async def test_disk_of_a_running_machine_is_not_replaced(one: Bench) -> None:
    await one.start()
    with pytest.raises(LabError, match="machine-1 is on"):
        await one.machine.write_disk(None)


async def test_close_and_reopen_leave_no_disk(tmp_path: Path, key: Key) -> None:
    for _time in range(2):
        backend = await open_backend("dry", "test", tmp_path / "site")
        assert list(backend.disks.iterdir()) == []
        await bench(backend, key, 1, disk_bytes=1 << 20).machine.create(None)
        assert list(backend.disks.iterdir()) != []
    await backend.close()
    assert not backend.disks.exists()


def test_addresses_are_stable_and_distinct(backend: Backend) -> None:
    assert len({backend.address(index) for index in range(1, 600)}) == 599
    assert len({backend.mac(index) for index in range(1, 600)}) == 599
    assert backend.address(7) == backend.address(7)
    with pytest.raises(LabError, match="machine index 0"):
        backend.address(0)


async def test_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="'docker' is not one of dry, nspawn, qemu"):
        await open_backend("docker", "test", tmp_path)


def test_best_kind_is_one_that_can_be_opened_and_says_why() -> None:
    kind, reason = best_kind()
    assert kind in KINDS
    assert reason
    if os.geteuid() != 0:
        assert kind == "dry"
        assert "root" in reason


@pytest.mark.root
def test_error_on_a_host_without_programs_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match="apt-get install systemd-container dnsmasq-base iproute2"):
        best_kind()


@pytest.mark.root
async def test_missing_programs_are_named_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match=r"lacks .*nsenter.*systemd-nspawn.*apt-get install .*systemd-container"):
        await open_backend("nspawn", "test", tmp_path)
    assert list(tmp_path.iterdir()) == []
