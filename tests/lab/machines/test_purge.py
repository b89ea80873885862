# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``python -m lab purge`` takes away, and what it leaves alone."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cache
from lab.machines.backend import Backend
from lab.machines.cgroup import CGroup, hierarchy
from lab.machines.host_commands import HostSettings
from tests.lab.machines.guest import Key, bench
from tests.lab.machines.test_leftovers import vanished

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(900)]
_CHECKOUT = Path(__file__).resolve().parents[3]
_QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
_LAB = """
import json, socket, time
from lab.machines import loop
from lab.running import RunningLab
running = RunningLab(kind="nspawn")
running.open()
running.dedicated(image="debian")
link = socket.if_nametoindex(running.lab.backend._network.host_link)
print(json.dumps({"label": running.lab.backend.label, "link": link}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Folders of our own for state, records and disks of labs: other labs sweep theirs at their start."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/images").symlink_to(cache.images())
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path / "cache"))
    for name in ("KUBENODE_LAB_DIR", "KUBENODE_LAB_HOST_DIR", "KUBENODE_DISKS"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return dict(os.environ)


def _purge(environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "purge"],
        cwd=_CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def sysctl(environment: dict[str, str]) -> Iterator[str]:
    """A sysctl that a lab changed; its value before. One test at a time has it."""
    del environment
    with _QUEUE.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _QUEUE.read_text().strip()
        HostSettings().change(_QUEUE, str(int(before) + 1))
        yield before
        _QUEUE.write_text(before)


def _devices() -> list[Path]:
    """The cache modes of loop devices that are not given back."""
    return [path for path in HostSettings().all() if path.is_relative_to("/sys")]


def _end(process: subprocess.Popen[str], label: str, *, with_guard: bool) -> None:
    """Kill a lab; its guard too, so that its machines go on without it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    kill_file = f"kubenode-lab-{label}/cgroup.kill"
    counts = [pid for pid in _tasks(process.pid, children) if kill_file in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(counts) == 1
    if with_guard:
        os.kill(int(counts[0]), signal.SIGKILL)
    process.kill()
    process.wait()


def _tasks(pid: int, first: list[str]) -> set[str]:
    """The children of all threads of a process."""
    found = set(first)
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        found.update(file.read_text().split())
    return found


@pytest.mark.parametrize("with_guard", [False, True])
async def test_what_a_killed_lab_left_is_removed_and_named(
    environment: dict[str, str], sysctl: str, with_guard: bool
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _LAB], cwd=_CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    facts = json.loads(await asyncio.to_thread(process.stdout.readline))
    # Other tests have labs on this host, too: the lines of this one have its label, or its process's name.
    label, name = facts["label"], f"process-{process.pid}-"
    said = await asyncio.to_thread(_purge, environment)
    assert not [line for line in said if line.startswith("removed: ") and label in line], "the lab is up"
    assert any(line.startswith("left alone: fs.inotify.max_queued_events") and label in line for line in said)

    _end(process, label, with_guard=with_guard)
    process.stdout.close()
    if with_guard:
        assert "populated 1" in (hierarchy() / f"kubenode-lab-{label}/cgroup.events").read_text()
    reported = await asyncio.to_thread(_purge, environment)
    said = [line.removeprefix("removed: ") for line in reported]
    ours = {line.removeprefix(f"lab {label}: ") for line in said if line.startswith(f"lab {label}: ")}
    ours |= {line.partition(": ")[2] for line in said if line.startswith(f"lab {name}")}
    assert ("running processes and their namespaces" in ours) == with_guard
    assert any(what.startswith("disks in ") for what in ours)
    assert any(what.startswith("its state in ") for what in ours)
    vanished(label)
    # By number: the name of a link that is gone is free, and a lab of another test may have it by now.
    assert facts["link"] not in {number for number, _name in socket.if_nameindex()}
    assert list(Path(environment["KUBENODE_LAB_DIR"]).iterdir()) == []
    # A device that is free for a moment may be taken by a lab of another test, which has records of its own.
    in_use = {f"left alone: {path.parents[1].name}: keeps its cache mode while it is in use" for path in _devices()}
    assert in_use <= set(reported)

    others = [line for line in said if "fs.inotify.max_queued_events" in line]
    if others and others[0].startswith("left alone"):
        assert label not in others[0], "labs of others are up on this host"
    else:
        assert _QUEUE.read_text().strip() == sysctl
    said = await asyncio.to_thread(_purge, environment)
    assert not [line for line in said if label in line or name in line]


async def test_a_lab_that_begins_elsewhere_is_left_alone(environment: dict[str, str]) -> None:
    """Nothing is in its control group yet, and it is known in another register than ours."""
    group = CGroup.of_lab(f"begins-{os.getpid()}")
    held = group.hold()
    try:
        said = await asyncio.to_thread(_purge, environment)
        assert group.path.exists()
        assert not [line for line in said if group.path.name.removeprefix("kubenode-lab-") in line]
    finally:
        held.close()
    await asyncio.to_thread(_purge, environment)
    assert not group.path.exists()


async def test_a_lab_that_is_up_is_left_alone(nspawn_backend: Backend, key: Key, environment: dict[str, str]) -> None:
    """Its records are where purge does not look, so that only its locks and processes speak for it."""
    one = bench(nspawn_backend, key, 1)
    await one.start()
    await one.answers("echo kept | dd of=/dev/sda conv=fsync status=none")
    said = await asyncio.to_thread(_purge, environment)
    assert not [line for line in said if line.startswith("removed: ") and nspawn_backend.disks.name in line]
    assert (await one.ssh("head -c 4 /dev/sda")).out == "kept"
    assert nspawn_backend.disks.is_dir()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert one.machine.running
        await asyncio.sleep(0.2)


def test_nothing_left_is_said(environment: dict[str, str]) -> None:
    _purge(environment)
    said = _purge(environment)
    assert [line for line in said if not line.startswith("left alone: ")] in (
        ["nothing was left of labs that are gone"],
        [line for line in said if line.startswith("removed: ")],  # labs of others on this host have ended meanwhile
    )
