# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of machines that boot, each victim with a fault of its own: all are verified in the end, or say why not."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.testbed import KEY_NAME
from lab.machines.leftovers import labs_folder
from tests.integration.consent.conftest import Scene
from tests.integration.faults.conftest import SIZE
from tests.integration.faults.fleet import WAY_OUT
from tests.integration.faults.strikes import BEGUN, STRIKES, Strike, Victim
from tests.integration.testbeds import cloud_testbed
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.long, pytest.mark.timeout(3600)]

#: Requests: three a machine and what is asked for all; a victim may be armed, looked at and disarmed again in each run.
SHARED, VICTIM, MOST_RUNS = 30, 40, 4
STAGES = ("arming", "rescue", "begun", "written", "booted")


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    """A lab whose machines boot."""
    with Scene.of(cloud_testbed(tmp_path)) as made, contextlib.ExitStack() as made.undone:
        yield made


def mounted(scene: Scene, *words: str | Path) -> None:
    """Mount something until the test is over, though a loop device may hold it."""
    subprocess.run(["mount", *words], check=True)
    scene.undone.callback(subprocess.run, ["umount", "--lazy", words[-1]], check=True)


class Images:
    """What serves the images, in a process of its own that may be killed: the lab's server answers behind it."""

    def __init__(self, scene: Scene) -> None:
        url = urllib.parse.urlsplit(scene.testbed.image_url())
        self._host = str(url.hostname).rpartition(".")[0] + ".254"
        with socket.create_server((self._host, 0)) as free:
            port = free.getsockname()[1]
        self.url = url._replace(netloc=f"{self._host}:{port}").geturl()
        self._words = [sys.executable, "-c", _FORWARD, self._host, str(port), str(url.hostname), str(url.port)]
        self._process: subprocess.Popen[str] | None = None
        scene.undone.callback(self.kill)

    def start(self) -> None:
        """Returns when it answers."""
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """All connections end, and no further one is taken."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


_FORWARD = """
import asyncio, sys
async def pipe(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def take(*client):
    server = await asyncio.open_connection(sys.argv[3], int(sys.argv[4]))
    await asyncio.gather(pipe(client[0], server[1]), pipe(server[0], client[1]), return_exceptions=True)
async def main():
    listener = await asyncio.start_server(take, sys.argv[1], int(sys.argv[2]), backlog=100)
    print("ready", flush=True)
    await listener.serve_forever()
asyncio.run(main())
"""


class Fleet:
    """Playbook runs over a fleet of which some machines are victims."""

    def __init__(self, scene: Scene, strikes: dict[str, Strike], size: int) -> None:
        self.scene, self.strikes = scene, strikes
        self.names = [*strikes, *(f"other-{number:02}" for number in range(1, size - len(strikes) + 1))]
        self.runs: list[dict[str, dict[str, Any]]] = []
        self.outputs: list[str] = []
        self.lines: list[str] = []

    def prepare(self, **limits: int | str) -> None:
        """Servers of the victims that need another disk, the script of faults, the inventory."""
        self.scene.inventory({name: {} for name in self.names}, **{f"kubenode_{key}": limits[key] for key in limits})
        for name, strike in self.strikes.items():
            if strike.disk:
                self._bring(name, strike)
            if strike.fault:
                self.scene.fault(**strike.fault, machine=name)

    def _bring(self, name: str, strike: Strike) -> None:
        labels = {"kubenode.provision/machine": name}
        key = self.scene.call("GET", f"/ssh_keys?name={KEY_NAME}")["ssh_keys"][0]["id"]
        body = {"name": name, "server_type": "cx23", "location": "fsn1", "image": "ubuntu-24.04", "ssh_keys": [key],
                "labels": labels, "start_after_create": False}  # fmt: skip
        answer = self.scene.call("POST", "/servers", body)
        action = f"/actions/{answer['action']['id']}"
        until(lambda: self.scene.call("GET", action)["action"]["status"] == "success", "a server with another disk")
        victim = Victim(self.scene, name)
        victim.person.swap_disk(0, strike.disk)
        victim.person.close()
        if strike.room:
            number = answer["server"]["id"]
            (disk,) = labs_folder().glob(f"{self.scene.testbed.name[:20]}-*/m{number}-0.raw")
            room = self.scene.testbed.folder / f"room-of-{name}"
            room.mkdir()
            mounted(self.scene, "-t", "tmpfs", "-o", f"size={strike.room}", "none", room)
            with (room / "disk").open("wb") as file:
                file.truncate(disk.stat().st_size)
            mounted(self.scene, "--bind", room / "disk", disk)

    def run(self, *words: str, strike: bool = False) -> dict[str, dict[str, Any]]:
        """One run; the victims are struck beside it. Returns what its report says of each machine."""
        self.scene.testbed.report.unlink(missing_ok=True)
        running = self.scene.start(*words)
        victims = [self._struck(name, running) for name in self.strikes] if strike else []
        done = running.wait(2400)
        for victim, thread in victims:
            victim.over = True
            thread.join(300)
            victim.person.close()
        self.scene.output = done.output
        self.outputs.append(done.output)
        self.runs.append(self.scene.machines)
        return self.runs[-1]

    def _struck(self, name: str, running: Any) -> tuple[Victim, threading.Thread]:
        def act() -> None:
            until(lambda: victim.over or self._there(name), f"server {name}", seconds=1500, pause=0.3)
            if not victim.over:
                self.strikes[name].act(victim, lambda: running.output)

        victim = Victim(self.scene, name)
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        return victim, thread

    def _there(self, name: str) -> bool:
        return any(machine["name"] == name for machine in self.scene.testbed.machines())

    def failed(self) -> dict[str, str]:
        """The machines that the last run gave up, and why."""
        return {name: str(one["reason"]) for name, one in self.runs[-1].items() if one["failed"]}

    def judge_first(self) -> None:
        """Only victims failed, each for its own reason."""
        for name, reason in self.failed().items():
            strike = self.strikes.get(name)
            assert strike is not None, f"{name} was no victim: {reason}"
            assert strike.says, f"{strike.name}: given up: {reason}"
            assert re.search(strike.says, reason), f"{strike.name}: {reason}"
        for name in set(self.names) - set(self.strikes):
            assert self.runs[0][name]["verified"], name
            assert self.scene.boots(name) == ["rescue", "disk"], (name, self.scene.boots(name))

    def until_quiet(self) -> None:
        """Run again; a machine whose disk is unknown is named, once it has been refused."""
        named: list[str] = []
        for _run in range(MOST_RUNS):
            left = [name for name in self.failed() if not self._disk(name)]
            if not left:
                return
            named = [name for name in left if name in self.strikes and self.strikes[name].named and len(self.runs) > 1]
            self.run("-e", json.dumps({"kubenode_reinstall": named}))
        assert not [name for name in self.failed() if not self._disk(name)], self.failed()

    def _disk(self, name: str) -> str:
        return self.strikes[name].disk if name in self.strikes else ""

    def judge(self) -> None:
        """The world: by the lab's word, and by that of the machines themselves."""
        machines = {machine["name"]: machine for machine in self.scene.testbed.machines()}
        assert sorted(machines) == sorted(self.names)
        for name, row in machines.items():
            assert not row["rescue_enabled"], f"{name}: its rescue is armed"
            if self._disk(name):
                # it was made for this run, so its disk may be written; but nothing of that is ever started
                assert {boot["source"] for boot in row["boots"]} == {"rescue"}, (name, row["boots"])
                continue
            assert row["boots"][-1]["source"] == "disk", (name, row["boots"])
            assert self.scene.proof(name) == [name, "made by the bootstrap data"]
            record = self.scene.record(name)
            assert record["machine"] == name, record
            assert record["verified_at"], record
        assert len(self.scene.call("GET", "/ssh_keys")["ssh_keys"]) == 1
        assert not self.scene.call("GET", "/images?type=snapshot")["images"]
        ours = [one for one in self.scene.asked() if "kubenode" in one["user_agent"]]
        # a run that was killed had its share, too
        most = 3 * len(self.names) + SHARED * len(self.outputs) + VICTIM * len(self.strikes)
        assert len(ours) <= most, f"{len(ours)} requests, {most} at most"
        self.judge_words()

    def judge_words(self) -> None:
        """No secret and no traceback is printed, and each reason ends with a way out."""
        folder = self.scene.testbed.folder
        secrets = [self.scene.testbed.token]
        for name in ("id_ed25519", "host_key"):
            secrets += [line for line in (folder / name).read_text().splitlines() if len(line) > 40]
        logs = "".join(path.read_text(errors="replace") for path in Path(folder / "kubenode/logs").rglob("*.log"))
        for secret in secrets:
            assert secret not in "".join(self.outputs) + logs, "a secret in the output"
        assert "Traceback" not in "".join(self.outputs)
        for run in self.runs:
            for one in run.values():
                assert not one["failed"] or WAY_OUT.search(str(one["reason"])), f"no way out: {one['reason']}"


@pytest.mark.parametrize("kind", ["boot", "network", "disk"])
def test_each_victim_has_a_fault_of_its_own(scene, kind):
    strikes = {strike.name.replace(" ", "-").lower(): strike for strike in STRIKES if strike.kind == kind}
    fleet = Fleet(scene, strikes, SIZE)
    fleet.prepare(rescue_timeout=120, boot_timeout=180, command_timeout=300)
    began = time.monotonic()
    fleet.run(strike=True)
    print(f"first run: {time.monotonic() - began:.0f} s", json.dumps(fleet.failed(), indent=1))
    fleet.judge_first()
    fleet.until_quiet()
    print(f"quiet after {len(fleet.runs)} runs, {time.monotonic() - began:.0f} s", json.dumps(fleet.failed(), indent=1))
    fleet.judge()


def reaches(fleet: Fleet, stage: str, running: Any) -> bool:
    """Whether a machine has come to a stage of its way in this run.

    Which one is left open: the kill of an earlier stage may have come after the reboot of the quickest ones.
    """
    written = [name for name in fleet.names if f"\n{name}: the image command succeeded" in running.output]
    if stage in ("arming", "rescue"):
        return {"arming": "TASK [Arm the rescue", "rescue": "TASK [Write the disks"}[stage] in running.output
    if stage == "begun":
        return bool(written) or Victim(fleet.scene, fleet.names[0]).answers(BEGUN)
    return any(stage == "written" or fleet.scene.boots(name)[-1:] == ["disk"] for name in written)


def test_a_controller_that_is_killed_in_every_state_goes_on(scene):
    fleet = Fleet(scene, {}, SIZE)
    fleet.prepare(rescue_timeout=300, boot_timeout=300, progress="lines")
    for stage in STAGES:
        running = scene.start()
        running.until(lambda stage=stage, running=running: reaches(fleet, stage, running), stage)
        running.interrupt(signal.SIGKILL)
        fleet.outputs.append(running.output)
    fleet.run()
    assert not fleet.failed(), fleet.failed()
    for name in fleet.names:
        sources = scene.boots(name)
        assert sources[-1] == "disk", sources
        assert sources.count("disk") == 1, sources
    fleet.judge()


def test_an_image_server_that_starts_again_is_waited_for(scene):
    """While machines write: what was read goes on where it stood, and no machine is given up."""
    fleet, images = Fleet(scene, {}, SIZE), Images(scene)
    fleet.prepare(rescue_timeout=300, boot_timeout=300, image_url=images.url)
    images.start()
    running = scene.start()
    victim = Victim(scene, fleet.names[0])
    running.until(lambda: victim.answers(BEGUN), "the first command")
    images.kill()
    running.until(lambda: victim.answers(TRIES), "another try of the first machine")
    images.start()
    done = running.wait(2400)
    fleet.outputs.append(done.output)
    fleet.runs.append(scene.machines)
    assert not fleet.failed(), fleet.failed()
    for name in fleet.names:
        assert scene.boots(name) == ["rescue", "disk"], (name, scene.boots(name))
    fleet.judge()


#: Succeeds on a machine whose download was cut.
TRIES = "grep -rsl 'trying again' /root/.kubenode /root/output.json"
