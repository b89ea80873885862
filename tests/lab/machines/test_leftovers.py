# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a killed lab leaves, and that the next one of its name removes it."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.machines import lab_network, leftovers, loop
from lab.machines.backend import Backend, open_backend
from lab.machines.cgroup import CGroup, hierarchy
from lab.machines.leftovers import label_of, store_folder
from tests.lab.machines.guest import Key, bench
from tests.waiting import until, until_async

pytestmark = pytest.mark.nspawn

_LAB = """
import asyncio, json, sys
from pathlib import Path
from lab.machines import lab_network
from lab.machines.backend import open_backend
from tests.lab.machines.guest import Key, bench

lab_network._SUBNETS = (int(sys.argv[3]), 256)

async def main():
    backend = await open_backend("nspawn", "doomed", Path(sys.argv[1]))
    one = bench(backend, Key(Path(sys.argv[2])), 1)
    await one.up()
    print(json.dumps({"address": backend.address(1), "gateway": backend.gateway}), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def traces(label: str) -> list[str]:
    """Everything on this host that carries the lab's label."""
    found = [str(path) for path in (hierarchy() / f"kubenode-lab-{label}", store_folder(label)) if path.exists()]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if label in line]
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # a loop device of another lab has just ended
            found += [line for line in file.read_text().splitlines() if label in line]
    processes = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return found + [line for line in processes.splitlines() if label in line]


def vanished(label: str) -> None:
    """Nothing is left, after some time (the kernel takes mounts and devices away in the background)."""
    until(lambda: not traces(label), f"the end of the traces of {label}", pause=0.1, show=lambda: traces(label))


async def test_a_lab_begins_when_nothing_removes_an_older_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBENODE_DISKS", str(tmp_path))
    label = label_of("followed", tmp_path)
    lock = tmp_path / f"{label}.lock"
    lock.write_text(str(tmp_path))
    number = lock.stat().st_ino
    with leftovers.unused(lock) as text:  # as who sweeps holds it
        assert text == str(tmp_path)
        begins = asyncio.create_task(leftovers.begin(label, tmp_path))

        async def waits() -> bool:
            blocked = [line for line in Path("/proc/locks").read_text().splitlines() if "-> FLOCK" in line]
            return begins.done() or any(f":{number} " in line for line in blocked)

        await until_async(waits, "the lock of a lab that begins")
        assert not begins.done()
        await leftovers.clean_up(tmp_path, label)
    with await begins:
        with leftovers.unused(lock) as text:
            assert (lock.exists(), text) == (True, None)
        await leftovers.clean_up(tmp_path, label)
    assert not lock.exists()


@pytest.mark.parametrize("name", ["doomed", "another"])
async def test_killed_lab_dies_whole_and_is_swept_by_the_next(
    key: Key, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Labs of other workers take the first subnet that is free, from 16 on; the two names may run side by side.
    first = {"doomed": 100, "another": 170}[name] + os.getpid() % 70
    monkeypatch.setattr(lab_network, "_SUBNETS", (first, 256))
    state = (tmp_path / "site").resolve()
    label = label_of("doomed", state)
    lab = subprocess.Popen(
        [sys.executable, "-c", _LAB, state, key.private, str(first)], stdout=subprocess.PIPE, text=True
    )
    assert lab.stdout is not None
    facts = json.loads(await asyncio.to_thread(lab.stdout.readline))
    assert traces(label)
    lab.send_signal(signal.SIGKILL)
    lab.wait()
    lab.stdout.close()
    # a lab of another worker that opens meanwhile sweeps it, too
    group = CGroup(hierarchy() / f"kubenode-lab-{label}")
    until(lambda: not group.populated, "the end of the machines of a killed lab")

    backend = await open_backend("nspawn", name, state)
    try:
        assert backend.gateway == facts["gateway"], "the subnet is free again"
        one = bench(backend, key, 1)
        await one.start()
        assert await one.answers("hostname") == "rescue"
    finally:
        await backend.close()
        await backend.close()
    vanished(label)


async def test_second_lab_of_a_name_is_refused(nspawn_backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="already open in another process"):
        await open_backend("nspawn", "test", tmp_path / "site")
    assert nspawn_backend.gateway.startswith("198.18.")


async def test_two_labs_have_networks_of_their_own(nspawn_backend: Backend, key: Key, tmp_path: Path) -> None:
    other = await open_backend("nspawn", "test", tmp_path / "other")
    try:
        assert other.gateway != nspawn_backend.gateway
        pair = [bench(nspawn_backend, key, 1), bench(other, key, 1)]
        for one in pair:
            await one.start()
        assert await pair[0].answers("cat /proc/sys/kernel/random/boot_id") != await pair[1].answers(
            "cat /proc/sys/kernel/random/boot_id"
        )
    finally:
        await other.close()


def test_a_loop_device_that_goes_to_another_file_meanwhile_stays(tmp_path, monkeypatch):
    """The file of a dead lab is detached by another process after the look, and a new file gets the number."""
    dead, other = tmp_path / "dead", tmp_path / "other.raw"
    dead.mkdir()
    with other.open("wb") as file:
        file.truncate(1 << 20)
    attached = loop.Loop(other)
    looks = []

    def backing_file(entry):
        if f"loop{attached.number}/" not in str(entry):
            return Path()
        looks.append(entry)
        return other if len(looks) > 1 else dead / "disk.raw"

    monkeypatch.setattr(loop, "_backing_file", backing_file)
    try:
        assert loop.detach_all(dead) == 0
        entry = Path(f"/sys/block/loop{attached.number}/loop/backing_file")
        assert entry.read_text().strip() == str(other)
        assert len(looks) == 2
    finally:
        attached.close()


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV, errno.EPERM])
def test_a_group_that_another_process_removes_meanwhile_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def gone(*_arguments: object, **_more: object) -> None:
        raise OSError(code, os.strerror(code))

    group = CGroup(tmp_path / "group")
    for name in ("read_text", "write_text"):
        monkeypatch.setattr(Path, name, gone)
    if code == errno.EPERM:
        with pytest.raises(PermissionError):
            group.kill()
    else:
        group.kill()
        assert not group.populated
