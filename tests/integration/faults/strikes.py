# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of faults of machines that boot: what happens to the machine of each, and how the run may end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.errors import LabError
from lab.running import Person
from tests.integration.consent.conftest import Scene
from tests.waiting import until

#: Other host keys from now on, and no connection to those of before.
#: The shell of a script has the pattern on its own command line, which must not match it.
OTHER_KEYS = "rm -f /etc/ssh/sshd_config.d/host-keys.conf; systemctl restart ssh; pkill -f 'sshd.*[:] root'; true"
#: No login for some seconds, and open ones are closed.
NO_SSH = "systemctl stop ssh ssh.socket; pkill -f 'sshd.*[:] root'; sleep {}; systemctl start ssh"


#: Prints something once the command has begun.
BEGUN = "cat /root/.kubenode/installation"


class Victim:
    """A machine that a fault hits during a run."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene, self.name = scene, name
        self.person = Person(scene.lab, name)
        self.over = False  # the run has ended

    def boots(self) -> list[str]:
        """What it booted so far."""
        return [boot["source"] for boot in self.person.row()["boots"]]

    def inside(self, script: str) -> str:
        """What a script prints on the running system; nothing when none runs."""
        try:
            return self.person.enter(script)
        except LabError:
            return ""

    def answers(self, script: str) -> bool:
        """Whether a script prints something on the running system."""
        return bool(self.inside(f"{script} 2>/dev/null || true").strip())

    def comes(self, what: str, check: Callable[[], object]) -> None:
        """Wait for a moment of the run."""
        until(lambda: self.over or check(), f"{self.name}: {what}", seconds=1500, pause=0.2)

    def booted(self) -> None:
        """Wait for the boot of the rescue."""
        self.comes("the rescue", lambda: self.boots() or None)

    def begun(self) -> None:
        """Wait until something is being written."""
        self.comes("the command", lambda: self.answers(BEGUN))

    def written(self, running: Callable[[], str]) -> None:
        """Wait until the command has succeeded; ``running``: what the run has printed."""
        self.comes("the end of the command", lambda: f"\n{self.name}: the image command succeeded" in running())

    def cut(self) -> None:
        """The power fails, and comes back, as soon as no action locks the server."""
        self.comes("a server that is not locked", lambda: not self.person.row()["locked"])
        if not self.over:
            self.person._act("reset")


Act = Callable[[Victim, Callable[[], str]], None]


def nothing(_victim: Victim, _running: Callable[[], str]) -> None:
    """All is in the script of faults."""


def silent(victim: Victim, _running: Callable[[], str]) -> None:
    """Its SSH server is not reached until the run has given up."""
    victim.booted()
    victim.person.silence()
    victim.comes("the end of the run", lambda: False)
    victim.person.let_speak()


def refused(victim: Victim, _running: Callable[[], str]) -> None:
    """sshd is gone for some seconds, in the middle of the work."""
    victim.begun()
    victim.inside(NO_SSH.format(20))


def other_keys(victim: Victim, _running: Callable[[], str]) -> None:
    """The rescue shows other host keys."""
    victim.begun()
    victim.inside(OTHER_KEYS)


def line(**bad: int) -> Act:
    """Its network is bad for the whole run."""

    def act(victim: Victim, _running: Callable[[], str]) -> None:
        victim.person.worsen(**bad)
        victim.comes("the end of the run", lambda: False)
        victim.person.worsen()

    return act


def power_at(state: str) -> Act:
    """The power fails in this state."""

    def act(victim: Victim, running: Callable[[], str]) -> None:
        victim.booted()
        if state == "begun":
            victim.begun()
        elif state != "rescue":
            victim.written(running)
        if state == "booted":
            victim.comes("the new system", lambda: victim.boots()[-1] == "disk")
        victim.cut()

    return act


@dataclass(frozen=True)
class Strike:
    """One row. ``kind``: those of a kind strike in one run, each a machine of its own."""

    kind: str
    name: str
    act: Act = nothing
    #: For the lab's script, without the machine.
    fault: dict[str, Any] = field(default_factory=dict)
    #: What the reason says when the first run gives the machine up; empty: it may not.
    says: str = ""
    #: What is on its disk is not known afterwards: the way out is to name it.
    named: bool = False
    #: A disk of this size is put in before; it stays, so that the machine is given up in each run.
    disk: str = ""
    #: As much of that disk can be written; then writing fails, as it does at a bad sector.
    room: str = ""


STRIKES = (
    Strike("boot", "rescue ignored", fault={"point": "boot", "effect": "ignore_rescue"}),
    Strike("boot", "rescue late", fault={"point": "boot", "effect": "slow", "delay": 30}),
    Strike("boot", "nothing boots once", fault={"point": "boot", "effect": "dead"}),
    # given up after two boots, of which nothing tells what the second one was
    Strike("boot", "machine silent", silent, says="did not answer|it was not clear|timed out", named=True),
    # a lost answer to the start, which empties the disk, is left to the next run
    Strike("network", "SSH refused and cut", refused, says="SSH was lost"),
    Strike("network", "host key changed", other_keys, says="host key|another system|SSH was lost"),
    Strike("network", "network loses packets", line(loss=8)),
    Strike("network", "network slow", line(kbytes=3000)),
    Strike("disk", "disk full", disk="128M", says="bytes|larger|too small|does not fit|no room|space"),
    Strike("disk", "bad sectors", disk="4G", room="64M", says="reading or writing it failed .*: bad sectors"),
    Strike("disk", "power cut in the rescue", power_at("rescue"), says="another system|SSH|reboot", named=True),
    Strike(
        "disk",
        "power cut while it is written",
        power_at("begun"),
        says="another system|rebooted|SSH|answer",
        named=True,
    ),
    Strike("disk", "power cut when it is written", power_at("written"), says="answer|system|SSH", named=True),
    Strike("disk", "power cut while it boots", power_at("booted"), says="answer|system|cloud-init|SSH", named=True),
)
