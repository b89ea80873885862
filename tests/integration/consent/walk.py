# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server in memory, its people, and runs of ours that decide by the real code; here dedicated ones.

What is real: robot_rescue's boot flow, machine_disks and machine_boot, intents, claims, words and proof.
What is played: Robot's webservice, SSH, the disks, and the image command. `World.wrong` has what must never happen; it
judges by what is on the disks, and asks no code of ours. walk_cloud.py has the same for cloud servers.
"""

import contextlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent as consents
from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents, ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import DISK, RAM, Origin
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import login_keys, ssh
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import ApiError, Deadline
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_flow import BootOptions
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_rescue import RobotOptions, RobotRescue
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options, steps
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_names, guard
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import claims
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import (
    machine_boot,
    machine_disks,
    program_run,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import gate, remote
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.system_probe import CloudInit, System
from tests.key_pairs import public_key

NAME, NUMBER = "n1", 1
SERIALS = {"sda": "SERIAL-A", "sdb": "SERIAL-B"}
#: Where a run may be cut off, in this order.
STAGES = ("armed", "reset", "rescue", "claimed", "half", "written", "rebooted")
#: It fails there and ends: an upload was cut off, the rescue was lost, a program of the user said no.
STOPPED = "stopped"
OPERATOR = public_key("")
_numbers = itertools.count(1)


class Cut(Exception):
    """The run is killed here."""


@dataclass
class Content:
    """What a disk holds: a system of one of our commands, or of a person."""

    ours: bool
    record: dict[str, str] | None
    lets_in: bool = True
    good: bool = True  # its cloud-init ends well
    whole: bool = True
    finished: bool = True  # its image command ended well
    ran: bool = False
    placeholder: bool = False  # what a cloud server is made of
    over_begun: bool = False  # put where a run of ours was writing
    installation: str = ""
    uuid: str = field(default_factory=lambda: f"uuid-{next(_numbers)}")


@dataclass
class Boot:
    """What runs: a rescue, the system of a disk, or nothing."""

    kind: str
    disk: str = ""
    by: str = ""  # who had armed the rescue
    named: bool = False  # a run whose words name the machine met this rescue
    intent: str = ""
    job: str = ""  # of the command that ended, or was killed, in this rescue
    done: bool = False  # it ended well
    begun: bool = False  # a disk was emptied in it
    key: str = field(default_factory=lambda: public_key(""))
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def id(self) -> str:
        """The kernel's boot id."""
        return f"{self.number:08d}-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Words:
    """What the operator says in one run."""

    reinstall: Any = ()
    wipe: Any = ()
    first_contact: str = "refuse"

    def cover(self, variable: str, name: str, content: Content) -> bool:
        """Whether one of them lets a system go: an id that of its record, a bare name what it did not bring itself."""
        given, record = getattr(self, variable), content.record or {}
        if name not in given:
            return False
        if isinstance(given, dict):
            return (record.get("installation") or content.installation).startswith(given[name])
        return variable not in record.get("consent", "").split("+")


@dataclass(frozen=True)
class Plan:
    """What comes of a run: where it is killed (one of STAGES) or STOPPED, what it installs, and how that comes up.

    ``record``: whether the image command writes one; ``fails``: it does so at its end, all being written; ``reboots``:
    it restarts the machine in its middle; ``hiccup``: SSH is silent until the machine boots; ``between``: what a person
    does between its two phases; ``empty``: when disks of a dedicated server are emptied, as machine_disks takes it.
    """

    cut: str = ""
    good: bool = True
    image: str = "a"
    record: bool = True
    fails: bool = False
    reboots: bool = False
    hiccup: bool = False
    between: Any = None
    empty: str = "now"


class World:
    """One server. ``wrong``: every thing that happened without consent, or was called verified without proof."""

    def __init__(self) -> None:
        self.disks: dict[str, Content | None] = {"sda": None, "sdb": None}
        self.order = ["sda", "sdb"]
        self.boot = Boot("nothing")
        self.armed = ""
        self.armed_by_this_run = False
        self.silent = self.hiccup = False  # permanently, or until the next boot
        self.misses = 0  # boots that will go to the disk although a rescue is armed
        self.last_rescue_key = ""
        self.words = Words()
        self.last: Content | None = None  # what was written last
        #: Controllers whose run was killed before it reached the rescue that it had armed: for an hour, nothing tells
        #: that rescue of a dedicated server from a person's.
        self.unreached = set[Path]()
        self.wrong: list[str] = []
        self.messages: list[str] = []

    # --- the machine

    def start(self) -> None:
        """It boots: the armed rescue, else the first disk that can."""
        self.hiccup = False
        if self.armed and self.misses:
            self.misses -= 1
        elif self.armed:
            self.boot, self.armed = Boot("rescue", by=self.armed), ""
            self.last_rescue_key = self.boot.key
            return
        for disk in self.order:
            content = self.disks[disk]
            if content is not None and content.whole:
                content.ran = True
                self.boot = Boot("disk", disk)
                return
        self.boot = Boot("nothing")

    @property
    def system(self) -> Content | None:
        """The system that runs from a disk."""
        return self.disks[self.boot.disk] if self.boot.kind == "disk" else None

    def hears(self) -> str:
        """What SSH meets: silent, denied or system."""
        system = self.system
        if self.boot.kind == "nothing" or (system is not None and (self.silent or self.hiccup)):
            return ssh.SILENT
        return ssh.SYSTEM if system is None or system.lets_in else ssh.DENIED

    def origin(self) -> Origin:
        """What the running system reports of its root."""
        if self.boot.kind == "rescue":
            return Origin(0, RAM, ["motd"], uptime=10.0)
        uuids = [self.system.uuid] if self.system else []
        return Origin(0, DISK, disks=[self.about(self.boot.disk)], uuids=uuids, uptime=10.0)

    def about(self, disk: str) -> dict[str, Any]:
        """What identifies a disk."""
        return {"name": disk, "size": 1 << 30, "wwns": [], "serials": [SERIALS[disk]]}

    def facts(self) -> list[dict[str, Any]]:
        """What machine_disks sees."""
        return [self._facts(disk, content) for disk, content in self.disks.items()]

    def _facts(self, disk: str, content: Content | None) -> dict[str, Any]:
        entry = {"device": disk, "disks": [disk], "label": "", "detail": "", "mounts": [], "in_use": False}
        holds = []
        if content is not None:
            holds.append({**entry, "kind": "filesystem", "type": "ext4", "uuid": content.uuid})
            if content.whole:
                record = {"installed": content.record} if content.record else {}
                holds.append({**entry, "kind": "system", "type": "", "uuid": "", "system": "Debian", **record})
        return {
            "name": disk, "path": f"/dev/{disk}", "size": (1 << 30) + (disk == "sdb"), "wwn": "",
            "serial": SERIALS[disk], "model": "", "by_id": [], "by_path": "", "kind": "sata", "rotational": False,
            "read_only": False, "removable": False, "health": {"status": "unknown", "detail": ""}, "holds": holds,
            "system": False, "content_id": content.uuid if content else "", "mounts": [], "virtual": False,
        }  # fmt: skip

    # --- what must not happen

    def may_go(self, disk: str) -> bool:
        """Whether the operator's words, or nothing being there, allow what a disk holds to go."""
        content = self.disks[disk]
        if content is None or (content.ours and not content.ran) or content.over_begun:
            return True
        if self.words.cover("wipe", SERIALS[disk], content):
            return True
        ours = content.ours and (content.record or {}).get("machine") == NAME
        return ours and self.words.cover("reinstall", NAME, content)

    def lies_over_begun(self) -> bool:
        """Whether what a person puts on the first disk now lies where a run of ours had begun to write."""
        there = self.disks["sda"]
        return there is not None and (there.over_begun or (there.ours and not there.ran))

    def empties(self, disk: str) -> None:
        """A run of ours erases a disk."""
        self.boot.begun = True
        self._change(disk, "emptied")
        self.disks[disk] = None

    def reset_by_run(self) -> None:
        """A run of ours presses the button, or reboots by SSH."""
        named = NAME in self.words.reinstall
        if self.boot.kind == "rescue" and self.boot.by == "person" and not named:
            self.wrong.append("a person's rescue was reset")
        if self.boot.kind == "disk" and not named:
            if self.hears() == ssh.SYSTEM:
                self.wrong.append("a system that accepts our key was reset")
            elif self.words.first_contact != "reset":
                self.wrong.append("a live server was reset")
        system = self.system
        covered = system is None or self.words.cover("reinstall", NAME, system)
        if self.hears() == ssh.SYSTEM and named and not covered:
            self.wrong.append(f"{system} was reset by a word that does not count for it")
        self.start()

    def write(self, disk: str, content: Content) -> None:
        """An image command of ours writes a disk."""
        self._change(disk, "written over")
        self.disks[disk] = self.last = content

    def _change(self, disk: str, how: str) -> None:
        self.boot.named = self.boot.named or NAME in self.words.reinstall
        if not self.may_go(disk):
            self.wrong.append(f"{disk} was {how}, no run had named {self.disks[disk]}")
        if self.boot.by == "person" and not self.boot.named:
            self.wrong.append(f"{disk} was {how} in a person's rescue")

    def judge_drift(self, result: Mapping[str, Any], plan: Plan) -> None:
        """A system that is left alone and was made of another image than the one that is asked for."""
        shows = (self.system.record if self.system else None) or {}
        differs = shows.get("image_url", url(plan.image)) != url(plan.image)
        if result["installed"] and differs != bool(result["drift"]):
            self.wrong.append(f"asked for {url(plan.image)}, {self.system} runs, and the drift is {result['drift']}")

    def claim(self, expected: str) -> None:
        """A run says that this machine runs a verified system, which is of the installation ``expected``, if any.

        A controller that knows of no other one trusts the record of a system.
        """
        system = self.system
        record = (system.record if system else None) or {}
        good = system is not None and system.good and system.finished
        if system is None or not good or record.get("machine") != NAME or not record.get("verified_at"):
            self.wrong.append(f"verified, but {system} runs")
        elif expected and (system is not self.last or record["installation"] != expected):
            self.wrong.append(f"verified as {expected}, but {system} runs, and {self.last} was written last")


class _Robot:
    """Robot's webservice, as far as the fleet asks it."""

    own_run = None

    def __init__(self, world: World, cut: str) -> None:
        self._world, self._cut = world, cut
        uncounted = SimpleNamespace(sent=lambda *_given: None, left=lambda _route: 50, hourly=lambda _route: 50)
        self.limits, self.calls_of = uncounted, dict[str, int]()

    def read_list(self, path: str, _key: str, _deadline: object) -> list[dict[str, Any]]:
        return {
            "/server": [{"server_number": NUMBER, "server_name": NAME, "server_ip": "192.0.2.1", "status": "ready"}],
            "/reset": [{"server_number": NUMBER, "type": ["hw"]}],
            "/key": [{"fingerprint": login_keys.md5_fingerprint(OPERATOR), "data": OPERATOR}],
        }[path]

    def read(self, path: str, _deadline: object, machine: str = "") -> dict[str, Any]:
        active = {"active": bool(self._world.armed)}
        if path.endswith("/last"):
            key = self._world.last_rescue_key
            shown = [{"key": {"fingerprint": ssh_access.sha256_fingerprint(key)}}] if key else []
            return {"rescue": {**active, "host_key": shown}}
        if path.startswith("/boot"):
            return {"rescue": active, "boot": {"rescue": active}}
        if path.startswith("/reset"):
            return {"reset": {"type": ["hw"], "operating_status": "running"}}
        return {"server": {"wol": False}}

    def change(self, method: str, path: str, _deadline: object, look: Any, **_more: object) -> dict[str, Any]:
        if method == "POST" and self._world.armed:
            raise ApiError(409, "BOOT_ALREADY_ENABLED", "armed")
        self._world.armed = "run" if method == "POST" else ""
        self._world.armed_by_this_run = True
        if method == "POST" and self._cut == "armed":
            raise Cut
        return {}

    def reserve(self, *_given: object) -> None:
        """There is always a turn."""

    def stop(self, _error: Exception) -> None:
        """Nothing goes on."""

    def request(self, _method: str, _path: str, _deadline: object, **_more: object) -> dict[str, Any]:
        self._world.reset_by_run()
        if self._cut == "reset":
            raise Cut
        return {"reset": {}}


class Shell(ssh.Ssh):
    """SSH from a controller; its files are real."""

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(str(folder / "known_hosts"))
        (folder / "known_hosts").mkdir(parents=True, exist_ok=True)
        self._world = world

    def probe(self, _name: str, _address: str) -> ssh.Answer:
        world, kind = self._world, self._world.hears()
        if kind != ssh.SYSTEM:
            return ssh.Answer(kind, "played")
        record = world.system.record if world.system else None
        intent = intents.parse(world.boot.intent) if world.boot.kind == "rescue" else None
        return ssh.Answer(
            ssh.SYSTEM, hostname="host", boot_id=world.boot.id, installed=record, origin=world.origin(), intent=intent,
            addresses=("192.0.2.1",),
        )  # fmt: skip

    def probe_pinned(self, name: str, address: str) -> ssh.Answer:
        return self.probe(name, address)

    def host_keys(self, _name: str, _address: str) -> list[str]:
        return [] if self._world.hears() == ssh.SILENT else [self._world.boot.key]

    def keys_of_last_probe(self, name: str) -> list[str]:
        return self.host_keys(name, "")

    def pin(self, _name: str) -> None:
        """The next step sees for itself."""

    def reboot(self, _name: str, _address: str) -> bool:
        self._world.reset_by_run()
        return True


class Remote:
    """Ansible's connection to the machine."""

    is_open, rescue = False, None

    def __init__(self, world: World) -> None:
        self.world = world

    def use(self, *_given: object, **_named: object) -> None:
        """Every way leads to the machine."""

    log_in = leave = close = use

    def reboots(self, boot_id: str | None) -> bool:
        """The reboot of a rescue that is known: the connection to it is still open."""
        known = self.world.boot.kind == "rescue" and self.world.boot.id == boot_id
        if known:
            self.world.start()
        return known

    def run(self, _script: str, *arguments: str) -> tuple[int, str]:
        system = self.world.system
        if system is None or not arguments:
            return 1, ""
        system.record = json.loads(arguments[0])
        return 0, "recorded=1"


def _answers(world: World) -> Any:
    """The machine's half."""

    def call(_remote: object, step: str, _attempts: int = 1, **request: Any) -> dict[str, Any]:
        if step == steps.WIPE:
            for target in request["targets"]:
                world.empties(target["name"])
        job = {"running": False, "succeeded": world.boot.done}
        return {"disks": world.facts(), "job": job, "uptime": 1000.0}

    return call


def play(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSH and the clock of our code lead into the world; no wait takes time."""

    def system() -> System:
        cloud_init = CloudInit("done", errors=[] if world.system is None or world.system.good else ["played"])
        record = world.system.record if world.system else None
        return System(world.boot.id, "host", "6.1", "Debian", world.origin(), cloud_init, record)

    def wait_for(_remote: object, known: Any, judge: Any, _timeout: float, what: str, **more: Any) -> System:
        if world.hears() != ssh.SYSTEM:
            raise gate.GateClosed(f"{what} did not answer", None)
        found = system()
        verdict = judge(found)
        if verdict.verdict is not gate.Verdict.OPEN:
            raise gate.GateClosed(verdict.why, found)
        if any(more.get("ask", ())[:1]):  # the boot that is to end
            world.start()
            return System(**{**found.__dict__, "reboot_sent": True})
        if more.get("prove", True):
            known.prove(found.boot_id)
        return found

    monkeypatch.setattr(program_run, "call_step", _answers(world))
    monkeypatch.setattr(gate, "wait_for", wait_for)
    monkeypatch.setattr(remote.KnownHosts, "fingerprints", lambda self: [])
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr(Deadline, "sleep", _sleep)


def _sleep(deadline: Deadline, seconds: float, reason: str) -> None:
    if seconds > deadline.left():
        raise deadline.exceeded(reason)
    deadline._end -= seconds


def run(world: World, folder: Path, words: Words, plan: Plan) -> bool:
    """One run of the playbook from a controller's folder; returns whether it called the system verified."""
    world.words, world.armed_by_this_run, world.hiccup = words, False, plan.hiccup
    verified, seen = False, world.system is not None and world.hears() == ssh.SYSTEM
    world.boot.named = world.boot.named or NAME in words.reinstall or folder in world.unreached
    try:
        verified = _run(world, folder, words, plan)
    except Cut:
        world.unreached.add(folder)
    else:
        if seen:
            world.unreached.discard(folder)
        if world.armed == "run" and world.armed_by_this_run:
            world.wrong.append("the run ended and left a rescue armed")
    world.hiccup = False
    return verified


def inspect(world: World, folder: Path, words: Words, cut: str) -> None:
    """One run of robot_inspect, which only looks at the machine."""
    world.words, world.armed_by_this_run = words, False
    before = dict(world.disks)
    world.unreached.update({folder} if cut else ())
    with contextlib.suppress(Cut):
        _into_rescue(world, folder, words, Plan(cut), look_only=True)
        if world.armed == "run" and world.armed_by_this_run:
            world.wrong.append("the look ended and left a rescue armed")
    world.wrong += ["a look changed a disk"] if world.disks != before else []


def _into_rescue(world: World, folder: Path, words: Words, plan: Plan, look_only: bool = False) -> dict[str, Any]:
    machine = {"name": NAME, "server_number": NUMBER, "first_contact": words.first_contact}
    boot_options = BootOptions(
        [machine], "rescue", ("reinstall", words.reinstall), timeout=60,
        wanted=[{"name": NAME, "image_url": url(plan.image)}], intents_dir=str(folder / "intents"),
    )  # fmt: skip
    more = RobotOptions(
        dict.fromkeys(("ssh", "hw"), 0.0), (OPERATOR, None), "key", look_timeout=0, look_only=look_only
    )  # fmt: skip
    (result,) = RobotRescue(_Robot(world, plan.cut), Shell(world, folder), boot_options, more).run()
    world.messages.append(result["msg"])
    return result


def url(image: str) -> str:
    return f"https://i/{image}.raw"


def _run(world: World, folder: Path, words: Words, plan: Plan) -> bool:
    intent, cut = folder / "intents" / f"{NAME}.json", plan.cut
    result = _into_rescue(world, folder, words, plan)
    if result["failed"]:
        return False
    if cut == "rescue":
        raise Cut
    boot_state = result["boot_state"]
    common = {"known_hosts_dir": str(folder / "known_hosts"), "boot_state": boot_state, "boot_state_since": None}
    written, installation = None, result["installation"]
    if result["in_rescue"]:
        world.boot.named = world.boot.named or NAME in words.reinstall
        disks = _disks(world, common, intent, words, result, plan)
        world.messages.append(disks["msg"])
        if disks["failed"]:
            return False
        if cut == "claimed":
            raise Cut
        if cut == STOPPED:
            return False
        installation = installation or installed.new_installation()
        written = _command(world, intent, installation, disks, plan)
        if written is None:
            return False
    else:
        world.judge_drift(result, plan)
        if result["proven"]:
            world.claim(installation)
        if result["proven"] or not result["installed"]:
            return bool(result["proven"])
    if cut == "rebooted":
        world.start()
        raise Cut
    return boot(world, common, intent, installation, written, plan, bool(result["in_rescue"]))


def boot(
    world: World, common: Mapping[str, Any], intent: Path, installation: str, written: Any, plan: Plan, reboot: bool
) -> bool:
    """The last step of a run: machine_boot."""
    about = {
        **defaults(options.machine_boot_spec()), **common, "expect": "os", "reboot": reboot, "proof": "disk",
        "installation": installation, "written": written, "intent_file": str(intent), "image_url": url(plan.image),
        "previous_boot_id": world.boot.id if reboot else None,
    }  # fmt: skip
    booted = machine_boot._Boot(Remote(world), about, Flow(about, NAME), []).result()
    world.messages.append(booted["msg"])
    verified = bool(booted["verified"] and not booted["failed"])
    if verified:
        world.claim(installation)
    return verified


def _disks(
    world: World, common: dict[str, Any], intent: Path, words: Words, result: dict[str, Any], plan: Plan
) -> dict[str, Any]:
    given = {
        **defaults(options.machine_disks_spec()), **common, "state": "ready", "wipe": words.wipe, "empty": plan.empty,
        "root_device_hints": disk_names.check({"serial": SERIALS["sda"]}), "reinstall": words.reinstall,
        "claim_file": str(intent), "host_keys": result["host_keys"], "previous_boot_id": result["previous_boot_id"],
    }  # fmt: skip
    named = {"wipe": consents.Words("wipe", words.wipe), "reinstall": consents.Words("reinstall", words.reinstall)}
    assert not guard.check_entries(named["wipe"])
    return machine_disks._Disks(Remote(world), given, Flow(given, NAME), named, False).result()


def new_system(installation: str, consent: str, plan: Plan) -> Content:
    """What an image command of ours writes."""
    record = {"machine": NAME, "installation": installation, "consent": consent}
    if not plan.fails:  # commands like ours write the rest of it last
        record.update(command="c", installed_at="2026-11-23T00:00:00Z", image_url=url(plan.image))
    shown = record if plan.record else None
    whole = plan.cut != "half"
    return Content(True, shown, good=plan.good, whole=whole, finished=not plan.fails, installation=installation)


def _command(world: World, intent: Path, installation: str, disks: dict[str, Any], plan: Plan) -> Any:
    """What an image command does, and what its runner keeps; None when it failed."""
    kept = intents.read(str(intent))
    world.boot.intent = json.dumps(kept or {})
    before = world.disks["sda"]
    if not disks["in_progress"]:
        claims.note_begun(str(intent))
        for disk in disks["to_empty"]:
            world.empties(disk["name"])
        world.write("sda", new_system(installation, disks["consent"], plan))
        if plan.cut == "half":
            raise Cut
        world.boot.done = not plan.fails
    now = world.disks["sda"]
    if plan.cut == "written" or now is None:
        raise Cut
    old = sorted({"ext4", before.uuid}) if before is not None and before is not now else []
    written = [{**world.about("sda"), "holds": [now.uuid], "kinds": ["ext4"], "only": False, "before": old}]
    intents.note_written(str(intent), written, world.boot.done)
    return written if world.boot.done else None


def defaults(spec: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of all options of a step."""
    return {name: about.get("default") for name, about in spec.items()}
