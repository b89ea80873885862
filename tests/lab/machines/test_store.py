# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that are made from an image, many at once, hold what the image holds."""

import asyncio
import itertools
import random
import time
from pathlib import Path

import pytest

from lab.machines import store
from lab.machines.backend import Backend
from tests.lab.machines.guest import Key, bench

_MIB = 1 << 20
_PIECES = 24


def _slow_copies(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Copies of whole images take half a second, and each one begins a little after the one before."""
    copies: list[Path] = []
    copy, order = store.copy_sparse, itertools.count()

    def slow(source: Path, target: Path) -> None:
        if not target.name.startswith(".template-"):
            copy(source, target)
            return
        copies.append(target)
        time.sleep(next(order) * 0.15)
        with source.open("rb") as reader, target.open("wb") as writer:
            while chunk := reader.read(_MIB):
                writer.write(chunk)
                writer.flush()
                time.sleep(0.02)

    monkeypatch.setattr(store, "copy_sparse", slow)
    return copies


@pytest.mark.nspawn
async def test_twenty_machines_created_at_once_hold_their_image(
    nspawn_backend: Backend, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(random.Random(1).randbytes(_PIECES * _MIB))
    copies = _slow_copies(monkeypatch)
    benches = [bench(nspawn_backend, key, index, disk_bytes=(_PIECES + 8) * _MIB) for index in range(1, 21)]
    await asyncio.gather(*(one.machine.create(image) for one in benches))
    wanted = image.read_bytes() + bytes(8 * _MIB)
    disks = [nspawn_backend.disks / f"m{one.hardware.machine_id}-0.raw" for one in benches]
    assert [disk.name for disk in disks if disk.read_bytes() != wanted] == []
    assert len(copies) == 1, "one writer copies the image into the store"
    assert not list(nspawn_backend.disks.glob("*.part"))


@pytest.mark.nspawn
async def test_a_store_may_be_removed_by_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab that starts and `lab purge` may remove the store of the same dead lab; both have seen it mounted."""
    folder = tmp_path / "store"
    await store.Store.open(folder, own_file_system=True)
    run, both, one_at_a_time = store.run, asyncio.Barrier(2), asyncio.Lock()

    async def run_when_both_are_there(*command: str) -> str:
        await both.wait()
        async with one_at_a_time:
            return await run(*command)

    monkeypatch.setattr(store, "run", run_when_both_are_there)
    await asyncio.gather(store.discard(folder), store.discard(folder))
    assert not folder.exists()
    assert not folder.with_name("store.xfs").exists()
