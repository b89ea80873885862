# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of test_walk.py on machines that boot: real playbook runs, and people at the same servers between them.

Each server is one seeded sequence; the servers of a round share a lab and its runs. The oracle reads the disks at the
machine itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent as consents
from ansible_collections.kubenode.provision.plugins.module_utils._common import installed
from dev.dedicated import DedicatedStage
from lab.client import call
from lab.machines.host import LabError
from lab.person import Mark, Person
from lab.running import RunningLab
from tests.integration.consent.conftest import Scene

pytestmark = [pytest.mark.nspawn, pytest.mark.long, pytest.mark.timeout(3600)]

ROUNDS, SERVERS, RUNS = 4, 5, 4
#: Tasks at which a run is killed.
STAGES = (
    "TASK [Arm the rescue and reset]",
    "TASK [Find the disks to write",
    "TASK [Run the image command",
    "TASK [Boot the new system",
)
#: Prints what tells the system on the first disk from others, whether it runs or the rescue does.
LOOK = r"""
where=
if [ -d /root/.oldroot ]; then
    where=/run/look
    mkdir -p $where
    for part in /dev/nvme0n1p*; do
        mount -o ro,noload "$part" $where 2>/dev/null || continue
        [ ! -d $where/etc ] || break
        umount $where
    done
fi
echo "system=$([ ! -d "$where/etc" ] || echo yes)"
echo "record=$(tr -d '\n' <"$where/etc/kubenode/installed.json")"
echo "person=$(cat "$where/etc/precious")"
[ -z "$where" ] || umount $where
"""


def reached(stage: DedicatedStage) -> RunningLab:
    """What a person needs of a lab in another process."""
    lab, robot = stage.lab, stage.lab["robot"]
    password = Path(robot["password_file"]).read_text(encoding="ascii")

    def control(method: str, path: str, body: Any = None, _timeout: float = 0) -> Any:
        return call(lab["endpoint"], stage.token, method, path, body, 300)

    return cast(RunningLab, SimpleNamespace(
        endpoint=lab["endpoint"], token=stage.token, robot_endpoint=robot["endpoint"], robot_user=robot["user"],
        robot_password=password, control=control,
    ))  # fmt: skip


class Server:
    """One sequence."""

    def __init__(self, seed: int, scene: Scene, number: int) -> None:
        assert isinstance(scene.stage, DedicatedStage)
        self.chance, self.scene, self.number = random.Random(seed), scene, number
        self.name, self.serial = f"walk-{number}", serial(number)
        self.person = Person(reached(scene.stage), number)
        self.steps = [f"seed {seed}"]
        self.data: Mark = self.person.mark(1)  # a disk of the user's, which nobody ever names
        self.ours: dict[str, str] = {}  # the record of a system of ours on the first disk
        self.mine = ""  # what a person left in the system on the first disk
        self.ran = False
        self.tokens = 0

    # --- people

    def act(self) -> None:
        """One of the things that happen between two runs."""
        acts = [self.nothing] * 2 + [self.rescue, self.reset, self.mend, self.install, self.key, self.silence]
        act = self.chance.choice(acts)
        try:
            act()
        except LabError as error:  # nothing runs that could be worked on
            self.steps.append(f"{act.__name__} was impossible: {error}")
        else:
            self.steps.append(act.__name__)

    def nothing(self) -> None:
        """Nobody comes."""

    def rescue(self) -> None:
        """A person boots it into a rescue, and stays there."""
        self.person.to_rescue(wait=False)

    def reset(self) -> None:
        """A person presses the button; what is armed boots."""
        self.person._reset(self.person.row())

    def mend(self) -> None:
        """A person changes the running system."""
        self._leave("true")

    def install(self) -> None:
        """A person has another system from now on."""
        self._leave("rm -rf /etc/kubenode")
        self.ours = {}

    def _leave(self, script: str) -> None:
        self.tokens += 1
        self.person.enter(f"[ ! -d /root/.oldroot ] && {script} && echo {self.tokens} >/etc/precious && sync")
        self.mine = str(self.tokens)

    def key(self) -> None:
        """The operator's key is taken out."""
        self.person.remove_key(self.scene.stage.private_key.with_suffix(".pub").read_text(encoding="ascii"))

    def silence(self) -> None:
        """Its network is gone during the next run."""
        self.person.silence()

    # --- the operator

    def words(self) -> dict[str, Any]:
        """What the operator says of this server in the next run."""
        said: dict[str, Any] = {"kubenode_first_contact": self.chance.choice(["refuse", "reset", "reset"])}
        if self.chance.random() < 0.25:
            said["kubenode_wipe"] = [self.serial]
        return said

    def named(self) -> Any:
        """How it stands in kubenode_reinstall: not at all (None), by its name alone (empty), or with an id."""
        if self.chance.random() < 0.6:
            return None
        return installed.installation_of(self.ours)[:8] if self.ours and self.chance.random() < 0.5 else ""

    # --- the oracle

    def judge(self, said: Mapping[str, Any], words: consents.Words, report: Mapping[str, Any] | None) -> None:
        """Compare what is on the disks with what was there, and with what the run says."""
        self.data.assert_untouched()
        found = self._look()
        if found is None:
            assert not self.ran or self._consented(said, words), self._told("what ran there is gone")
            self.ours, self.mine, self.ran = {}, "", False
            return
        record, mine = found
        same = installed.installation_of(record) == installed.installation_of(self.ours) and mine == self.mine
        if not same:
            assert not self.ran or self._consented(said, words), self._told(f"it was written over: {record} {mine}")
        self.ours, self.mine = record, mine
        self.ran = self._from_disk() or (self.ran and same)
        if report is not None and report.get("verified"):
            assert self._from_disk(), self._told("verified, and no system runs")
            assert record.get("machine") == self.name, self._told(f"verified, and {record} runs")
            assert record.get("verified_at"), self._told(f"verified, and {record} runs")

    def _consented(self, said: Mapping[str, Any], words: consents.Words) -> bool:
        wipe = consents.Words("wipe", said.get("kubenode_wipe", []))
        by_disk = self.serial in list(wipe) and wipe.covers(self.serial, self.ours)
        return by_disk or (bool(self.ours) and words.names(self.name) and words.covers(self.name, self.ours))

    def _from_disk(self) -> bool:
        row = self.person.row()
        return bool(row["powered"]) and row["boots"][-1]["source"] == "disk"

    def _look(self) -> tuple[dict[str, str], str] | None:
        """The record and the person's token of the system on the first disk; None when there is none."""
        self.person.let_speak()
        try:
            told = dict(line.split("=", 1) for line in self.person.enter(LOOK).splitlines() if "=" in line)
        except LabError:
            return None
        if told["system"] != "yes":
            return None
        return (json.loads(told["record"]) if told["record"] else {}), told["person"]

    def _told(self, what: str) -> str:
        return (
            f"{self.name}: {what}; before: {self.ours} {self.mine}\n"
            + "\n".join(self.steps)
            + self.scene.output[-6000:]
        )


def serial(number: int) -> str:
    """Of the first disk."""
    return f"WALK{number:011d}"


def servers(first: int) -> list[dict[str, Any]]:
    """Servers with a disk to write and a disk of data."""
    return [
        {
            "number": number,
            "memory_mib": 1024,
            "disks": [
                {"kind": "nvme", "size": "3G", "serial": serial(number)},
                {"kind": "sata", "size": "64M", "serial": f"DATA{number:011d}"},
            ],
        }
        for number in range(first, first + SERVERS)
    ]


@pytest.mark.parametrize("part", range(ROUNDS))
def test_no_walk_on_machines_writes_what_nobody_named(part, tmp_path):
    first = 500 + part * SERVERS
    stage = DedicatedStage(
        tmp_path / "stage", f"walk-{os.getpid()}-{part}", servers(first), lab_options=["--kind", "nspawn"]
    )
    with stage:
        scene = Scene(stage)
        walk = [Server(number, scene, number) for number in range(first, first + SERVERS)]
        try:
            verified = sum(_run(scene, walk, random.Random(first * 100 + run), run) for run in range(RUNS))
        finally:
            scene.stop()
            for one in walk:
                one.person.close()
    # walks that never get anywhere would prove nothing
    assert verified >= SERVERS, verified


def _run(scene: Scene, walk: list[Server], chance: random.Random, number: int) -> int:
    """One run for all servers, perhaps killed, perhaps from a colleague's folder; returns how many it verified."""
    said = {one.name: one.words() for one in walk}
    named = {one.name: word for one in walk if (word := one.named()) is not None} if number else {}
    folder = scene.stage.folder / (chance.choice(["mine", "mine", "colleague"]) if number else "mine")
    hosts = {
        one.name: {
            "kubenode_server_number": one.number, "kubenode_root_device_hints": {"serial": one.serial},
            "kubenode_hw_reset_timeout": 40, "kubenode_power_reset_timeout": 40, "kubenode_sw_reset_timeout": 20,
            "kubenode_ssh_reset_timeout": 40, **said[one.name],
        }
        for one in walk
    }  # fmt: skip
    scene.servers(hosts, kubenode_dir=str(folder), kubenode_rename=False)
    # names alone are a list; with ids, those without one are left out
    ids = {name: word for name, word in named.items() if word}
    reinstall: Any = ids or sorted(named)
    cut = chance.choice(STAGES) if number and chance.random() < 0.4 else ""
    step = f"run {number} in {folder.name}: {reinstall} {said} cut={cut!r}"
    for one in walk:
        one.steps.append(step)
    scene.stage.report.unlink(missing_ok=True)
    running = scene.start("-e", json.dumps({"kubenode_reinstall": reinstall}))
    if cut:
        with contextlib.suppress(AssertionError):  # it ended before, since nothing was left to do
            running.until(cut)
        running.interrupt(signal.SIGKILL)
    scene.output = running.wait().output
    report = {}
    if not cut and scene.stage.report.exists():
        report = {one["name"]: one for one in json.loads(scene.stage.report.read_text())["machines"]}
    words = consents.Words("reinstall", reinstall)
    for one in walk:
        one.judge(said[one.name], words, report.get(one.name))
    verified = sum(bool(report.get(one.name, {}).get("verified")) for one in walk)
    if number + 1 < RUNS:
        for one in walk:
            one.act()
    return verified
