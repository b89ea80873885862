# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators, other people and runs that are cut off, in any order: no disk is written that was not named, and only
what this installation wrote is called "verified"."""

import dataclasses
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.integration.consent import walk_cloud
from tests.integration.consent.walk import (
    NAME,
    SERIALS,
    STAGES,
    STOPPED,
    Content,
    Plan,
    Words,
    World,
    inspect,
    play,
    run,
)

#: Of the walks, every other one is a cloud server's.
WALKS, MORE, STEPS = 200, 4000, 25


class Walk:
    """One sequence of a dedicated server; everything is drawn from its seed."""

    def __init__(self, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance, self.folder = random.Random(seed), folder
        # what came later has draws of its own, so that the seeds that found something still do the same
        self.more, self.misses = random.Random(f"more {seed}"), random.Random(f"misses {seed}")
        self.world = self._world(monkeypatch)
        self.controllers = [folder / "mine", folder / "colleague"]
        self.inventory = Words()  # entries that were never removed
        self.steps: list[str] = []
        self.runs = self.verified = 0

    def _world(self, monkeypatch: pytest.MonkeyPatch) -> World:
        world = World()
        play(world, monkeypatch)
        return world

    def acts(self) -> list[Callable[[], None]]:
        """What people do besides runs."""
        return [
            self.inspect, self.rescue, self.reset, self.install, self.second, self.swap, self.key, self.silence,
            self.forget_word,
        ]  # fmt: skip

    def step(self) -> None:
        """One of the things that happen."""
        act = self.chance.choice([self.run] * 5 + self.acts())
        if self.more.random() < 0.1:
            self.by_hand()
        if self.misses.random() < 0.05:
            self.miss()
        self.steps.append(act.__name__)
        act()

    def run(self) -> None:
        """A run, perhaps killed, perhaps from another controller, with the words of the inventory or more."""
        words = self.inventory
        if self.chance.random() < 0.5:
            words = self._words()
        controller, plan = self.chance.choice([*self.controllers[:1] * 3, *self.controllers]), self._plan()
        empty = self.more.choice(["now", "later"])
        cut = plan.cut or (STOPPED if self.more.random() < 0.1 else "")
        plan = dataclasses.replace(plan, empty=empty, cut=cut, fails=self.misses.random() < 0.1)
        self.steps[-1] = f"run {words} {plan} {controller.name}"
        self.runs += 1
        self.verified += self._run(controller, words, plan)

    def _run(self, controller: Path, words: Words, plan: Plan) -> bool:
        return run(self.world, controller, words, plan)

    def _plan(self) -> Plan:
        return Plan(
            cut=self.chance.choice(STAGES) if self.chance.random() < 0.35 else "",
            good=self.chance.random() < 0.8,
            image=self.chance.choice("aaabc"),
            record=self.chance.random() < 0.8,
            hiccup=self.chance.random() < 0.2,
        )

    def inspect(self) -> None:
        """A look at the machine's disks."""
        words = self._words()
        cut = self.chance.choice(["armed", "reset"]) if self.chance.random() < 0.2 else ""
        self.steps[-1] = f"inspect {words} cut={cut}"
        inspect(self.world, self.chance.choice(self.controllers), words, cut)

    def _words(self) -> Words:
        named = [()] * 3 + [(NAME,)]
        system = self.world.disks["sda"]
        if system is not None and system.record:
            named.append({NAME: system.record["installation"][:8]})
        wipes = [(), (), (SERIALS["sda"],), (SERIALS["sdb"],), tuple(SERIALS.values())]
        return Words(
            self.chance.choice(named), self.chance.choice(wipes), self.chance.choice(["refuse", "reset", "reset"])
        )

    def rescue(self) -> None:
        """A person boots it into a rescue."""
        self.world.armed = "person"
        self.world.start()

    def reset(self) -> None:
        """A person presses the button; what is armed boots."""
        self.world.start()

    def install(self) -> None:
        """A person puts a system of their own on the first disk, and boots it."""
        self.world.disks["sda"] = Content(False, None, lets_in=self.chance.random() < 0.5)
        self.world.armed = ""
        self.reset()

    def by_hand(self) -> None:
        """A person writes the first disk from the rescue that runs, ours or not, unless our image is there."""
        if self.world.boot.kind != "rescue" or self.world.boot.done:
            return
        self.steps.append("by_hand")
        self.world.disks["sda"] = Content(False, None, over_begun=self.world.lies_over_begun())

    def second(self) -> None:
        """A person brings a second disk with an old system, perhaps one of ours of another machine or time."""
        record = {
            "machine": self.chance.choice([NAME, "other"]),
            "installation": f"{self.chance.getrandbits(128):032x}",
        }
        record.update(verified_at="2026-01-01T00:00:00Z", installed_at="2026-01-01T00:00:00Z", consent="wipe")
        old = Content(False, self.chance.choice([None, record]), ran=True)
        self.world.disks["sdb"] = self.chance.choice([None, old])
        self.reset()

    def swap(self) -> None:
        """The firmware prefers the other disk from now on."""
        self.world.order.reverse()
        self.reset()

    def key(self) -> None:
        """The keys of what runs are changed."""
        if self.world.system is not None:
            self.world.system.lets_in = not self.world.system.lets_in

    def silence(self) -> None:
        """Its network goes, or comes back."""
        self.world.silent = not self.world.silent

    def forget_word(self) -> None:
        """A word is left in the inventory."""
        self.inventory = self._words()

    def miss(self) -> None:
        """Some of the next boots go to the disk although a rescue is armed."""
        self.world.misses = self.misses.choice([1, 2, 2])


class CloudWalk(Walk):
    """One sequence of a cloud server, which the first run makes."""

    world: walk_cloud.World

    def _world(self, monkeypatch: pytest.MonkeyPatch) -> walk_cloud.World:
        world = walk_cloud.World(self.folder)
        walk_cloud.play(world, monkeypatch)
        return world

    def acts(self) -> list[Callable[[], None]]:
        """What people do besides runs, once there is a server."""
        acts = [
            self.rescue, self.reset, self.install, self.second, self.swap, self.key, self.silence, self.forget_word,
            self.miss, self.off,
        ]  # fmt: skip
        return acts if self.world.status else [self.run]

    def _run(self, controller: Path, words: Words, plan: Plan) -> bool:
        return walk_cloud.run(self.world, controller, words, plan)

    def _plan(self) -> Plan:
        between = self.chance.choice([self.reset, self.rescue]) if self.chance.random() < 0.2 else None
        plan = dataclasses.replace(super()._plan(), between=between)
        return dataclasses.replace(plan, cut=self.chance.choice(walk_cloud.STAGES)) if plan.cut else plan

    def rescue(self) -> None:
        """A person boots it into a rescue."""
        self.world.act("enable_rescue")
        self.reset()

    def reset(self) -> None:
        """A person presses the button; what is armed boots."""
        self.world.act("start_server" if self.world.status == "off" else "reset_server")

    def off(self) -> None:
        """A person switches it off."""
        self.world.switch_off()


def walk(seeds: Iterable[int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """One walk for each seed; returns how many runs there were, and how many of them verified a system."""
    runs = verified = 0
    for seed in seeds:
        one = (CloudWalk if seed % 2 else Walk)(seed, folder / str(seed), monkeypatch)
        for _number in range(STEPS):
            one.step()
            world = one.world
            assert not world.wrong, f"seed {seed}: {world.wrong}\n" + "\n".join([*one.steps, *world.messages[-4:]])
        runs, verified = runs + one.runs, verified + one.verified
    return runs, verified


def many_walks(seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks that never get anywhere would prove nothing."""
    runs, verified = walk(seeds, folder, monkeypatch)
    assert verified > runs / 20, (runs, verified)


@pytest.mark.parametrize("part", range(4))
def test_no_walk_writes_what_was_not_named_or_proves_what_is_not_there(part, tmp_path, monkeypatch):
    many_walks(range(part * WALKS // 4, (part + 1) * WALKS // 4), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("misses", "plan", "reason"),
    [
        (2, Plan(), "nothing shows that this system is installation"),
        (0, Plan(reboots=True), "it was not clear which system"),
        (0, Plan(good=False), "cloud-init ended with status error"),
    ],
)
def test_a_second_run_makes_no_success_of_a_failure(misses, plan, reason, tmp_path, monkeypatch):
    """P1: the rescue was missed twice; the command restarted the machine; cloud-init of the new system failed."""
    world = walk_cloud.World(tmp_path)
    walk_cloud.play(world, monkeypatch)
    world.misses = misses
    assert not walk_cloud.run(world, tmp_path / "mine", Words(), plan)
    boots, disk = world.boot.number, world.disks["sda"]
    if disk is not None and disk.placeholder:
        disk.lets_in = True  # it has the project's key
    for controller in ("mine", "colleague"):
        assert not walk_cloud.run(world, tmp_path / controller, Words(), Plan())
        assert reason in world.messages[-1]
        assert (world.boot.number, world.disks["sda"]) == (boots, disk), "and it leaves the machine as it is"
    assert (world.wrong, world.armed) == ([], "")


def test_what_a_killed_run_had_armed_ends_when_a_system_is_seen(tmp_path, monkeypatch):
    """The rescue that it left boots later: its word was for the run before a system was seen."""
    world, mine = walk_cloud.World(tmp_path), tmp_path / "mine"
    walk_cloud.play(world, monkeypatch)
    assert walk_cloud.run(world, mine, Words(), Plan())
    disk = world.disks["sda"]
    assert not walk_cloud.run(world, mine, Words(reinstall=(NAME,)), Plan(cut="armed"))
    assert walk_cloud.run(world, mine, Words(), Plan()), "nothing was written, so it is what it was"
    world.act("reset_server")
    assert (world.boot.kind, world.boot.by) == ("rescue", "run")
    assert not walk_cloud.run(world, mine, Words(), Plan())
    assert "not started for an open installation of ours" in world.messages[-1]
    assert (world.wrong, world.disks["sda"]) == ([], disk)


def test_a_second_run_of_a_dedicated_server_makes_no_success_of_a_failure(tmp_path, monkeypatch):
    """P1, where cloud-init failed; no run resets a running system, also when it is silent for a moment (C3)."""
    world = World()
    play(world, monkeypatch)
    words = Words(first_contact="reset")
    assert not run(world, tmp_path / "mine", words, Plan(good=False))
    boots, disk = world.boot.number, world.disks["sda"]
    assert not run(world, tmp_path / "mine", words, Plan())
    assert "cloud-init ended with status error" in world.messages[-1]
    assert disk is not None
    disk.good = True  # a person repairs it
    assert run(world, tmp_path / "mine", words, Plan())
    assert (world.boot.number, world.disks["sda"]) == (boots, disk)
    run(world, tmp_path / "mine", words, Plan(hiccup=True))
    assert (world.wrong, world.disks["sda"]) == ([], disk)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_no_longer_walk_does(part, tmp_path, monkeypatch):
    many_walks(range(WALKS + part * MORE // 10, WALKS + (part + 1) * MORE // 10), tmp_path, monkeypatch)
