# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud server in memory, its people, and runs of ours that decide by the real code.

What is real: hcloud_rescue's boot flow with its requests, the start of a job in a rescue with the guard of its
disks, machine_boot, intents, words and proof. What is played: the API's answers, SSH, the disks, and the image command.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, installed, text
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import ssh
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_flow import BootOptions
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_rescue import CloudRescue
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import INSTALLATION_LABEL, LABEL
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options, protocol, targets
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import claims
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow, intent_for
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.program_run import RescueRun
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import gate as gate_module
from tests.integration.consent import walk
from tests.integration.consent.walk import NAME, Content, Cut, Plan, Remote, Shell, Words

ID = 1
#: "asked": the rescue is enabled, and the run does not know it; "armed": it does, and has started nothing.
STAGES = ("created", "asked", *walk.STAGES, "armed")


class _Left(Exception):
    """The rescue is gone while its command ran."""


class World(walk.World):
    """One cloud server, and what the API knows of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.made: dict[str, Any] = {}  # the result of hcloud_machine, in the run that creates the server
        self.status, self.labels = "", dict[str, str]()
        self.history: list[dict[str, Any]] = []
        self.in_run = self.by_run = False  # a run of ours goes on, and works the server
        self.plan = Plan()

    def create(self) -> None:
        """What hcloud_machine does in the first run."""
        installation = installed.new_installation()
        self.status, self.labels = "off", {LABEL: NAME, INSTALLATION_LABEL: installation}
        self.disks["sda"] = Content(False, None, lets_in=False, placeholder=True)
        self.note("create_server")
        self.made = {
            "fresh": True, "created": True, "installation": installation, "boot_state": boot_states.INITIALIZING,
            "boot_state_since": text.to_rfc3339(time.time()),
        }  # fmt: skip

    def note(self, command: str) -> dict[str, Any]:
        """The API did something."""
        action = {"id": len(self.history) + 1, "command": command, "status": "success", "started": ""}
        self.history.insert(0, action)
        return action

    def server(self) -> dict[str, Any]:
        """As the API reports it."""
        return {
            "id": ID, "name": NAME, "status": self.status, "labels": dict(self.labels),
            "rescue_enabled": bool(self.armed), "public_net": {"ipv4": {"ip": "192.0.2.1"}, "ipv6": None},
            "server_type": {"name": "cx23"}, "location": {"name": "fsn1"},
        }  # fmt: skip

    # --- the machine

    @property
    def base(self) -> Path:
        """Where the files of our runner are in the rescue that runs."""
        return self._folder / f"rescue-{self.boot.number}"

    def start(self) -> None:
        """It boots; a server that was never started before runs its placeholder only when the rescue is missed."""
        self.status, first = "running", self.disks["sda"]
        untouched = self.in_run and first is not None and first.placeholder and not first.ran
        super().start()
        if self.boot.kind == "rescue":
            self.base.mkdir(parents=True)
            # The first start of a server that we made looks the same by a person and by the run that made it.
            done = [one["command"] for one in self.history if one["command"] != "stop_server"]
            # The same holds while a run works on it, as long as its disk has nothing but what it was made of.
            self.boot.named = untouched or done == ["start_server", "enable_rescue", "create_server"]
        elif untouched and first is not None:
            first.ran = False  # nothing of a person's is on it before the run has an end

    def switch_off(self) -> None:
        """By a person."""
        self.note("stop_server")
        self.status, self.boot = "off", walk.Boot("nothing")

    def act(self, command: str) -> dict[str, Any]:
        """A button of the server, pressed by a run or by a person."""
        if command == "start_server":
            self.cut_at("armed")
        by_run, action = self.by_run, self.note(command)
        if command == "enable_rescue":
            self.armed = "run" if by_run else "person"
            self.armed_by_this_run = by_run
        elif command == "disable_rescue":
            self.armed = ""
        elif by_run and command == "reset_server":
            self.reset_by_run()
        else:
            self.start()
        self.cut_at({"enable_rescue": "asked", "reset_server": "reset", "start_server": "reset"}.get(command))
        return action

    def cut_at(self, stage: str | None) -> None:
        """The run is killed here, if that was drawn."""
        if self.by_run and stage and self.plan.cut == stage:
            raise Cut

    # --- what must not happen

    def may_go(self, disk: str) -> bool:
        """Whether the operator's words, or nothing being there, allow what a disk holds to go."""
        content = self.disks[disk]
        if content is None or (not content.ran and (content.ours or content.placeholder or content.over_begun)):
            return True
        return disk == "sda" and self.words.cover("reinstall", NAME, content)

    def lies_over_begun(self) -> bool:
        """Whether what a person puts on the first disk now lies where a run of ours had begun to write, or may."""
        there = self.disks["sda"]
        fresh = there is not None and there.placeholder and not there.ran
        return fresh or self.boot.begun or super().lies_over_begun()

    def reset_by_run(self) -> None:
        """A run of ours presses the button, or reboots by SSH."""
        self.cut_at("armed")
        system, named = self.system, NAME in self.words.reinstall
        if self.boot.kind == "rescue" and self.boot.by == "person":
            self.wrong.append("a person's rescue was reset")
        own = system is not None and system.placeholder and not system.ran
        if self.boot.kind == "disk" and not named and not own:
            self.wrong.append(f"a running system was reset: {system}")
        covered = system is None or own or self.words.cover("reinstall", NAME, system)
        if named and not covered and self.hears() == ssh.SYSTEM:
            self.wrong.append(f"{system} was reset by a word that does not count for it")
        self.start()

    # --- the rescue

    def run(self, argv: Sequence[str], environ_update: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """A program in the rescue: our runner, or the look at disks."""
        del environ_update
        if argv[1] == "-c":
            return 0, self.listing(argv[4:]), ""
        if argv[2] == "start":
            self._write(argv[3])
        boot = self.boot
        state = protocol.NONE if not boot.job else protocol.EXITED if boot.done else protocol.KILLED
        fields = {"state": state, "job": boot.job, "boot": boot.id, "exit": "0", "marker": "1", "seconds": "1"}
        lines = [f"{key}={value}" for key, value in {**fields, "limit": "60", "end": "1"}.items()]
        return 0, "\n".join(["kubenode-runner=1", *lines, ""]), ""

    def _write(self, job: str) -> None:
        consent, plan = (self.base / protocol.CONSENT).read_text(), self.plan
        if plan.reboots:
            raise _Left
        self.boot.job, self.boot.intent = job, (self.base / protocol.INTENT).read_text()
        self.write("sda", walk.new_system(jobs.installation_in(str(self.base)), consent, plan))
        self.boot.done = plan.cut != "half" and not plan.fails
        self.cut_at("half")

    def listing(self, devices: Sequence[str]) -> str:
        """What `seen_disks` of the probe prints."""
        lines = ["disks 2"]
        for disk in devices:
            content = self.disks[disk]
            lines += [f"disk {disk}", "size 2097152", f"serial {walk.SERIALS[disk]}"]
            lines += [f"holds {content.uuid}", "kind ext4"] if content else []
        return "\n".join([*lines, "end of disks", ""])


class _Api:
    """The Cloud API, as far as the fleet asks it."""

    own_run = None

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls_of: dict[str, int] = {}
        self.budget = SimpleNamespace(plan=lambda *_given: SimpleNamespace(possible=True, fits=True))

    def read_all(self, path: str, _key: str, _deadline: object, **_more: object) -> tuple[list[dict[str, Any]], bool]:
        if path == "/ssh_keys":
            return [{"id": 1, "name": "key", "public_key": walk.OPERATOR}], True
        return (self._world.history if path.endswith("/actions") else [self._world.server()]), True

    def read(self, path: str, _deadline: object, **_more: object) -> dict[str, Any]:
        return {"server": self._world.server()} if path == f"/servers/{ID}" else {"servers": [self._world.server()]}

    def change(self, method: str, path: str, _deadline: object, _look: object, **more: Any) -> dict[str, Any]:
        if method == "PUT":
            self._world.labels = more["json"]["labels"]
            return {"server": self._world.server()}
        command = {"poweron": "start_server", "reset": "reset_server"}.get(path.rpartition("/")[2])
        return {"action": self._world.act(command or path.rpartition("/")[2])}

    def server_time(self) -> None:
        """The API's clock is not known, as before its first answer."""

    def stop(self, error: Exception) -> None:
        """Another thread has broken: `run_all` raises its error."""


class _InRescue:
    """The connection of an image command: it only reports what the disks hold."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self, _script: str, *devices: str) -> tuple[int, str]:
        before = (self._world.base / protocol.BEFORE).read_text()
        return 0, f"{before}\n\nand now\n{self._world.listing(devices)}"


def play(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in walk.py; and the machine's half looks at the world's disks."""

    def wipe(_tools: object, disks: Sequence[str]) -> None:
        for disk in disks:
            world.empties(disk)

    walk.play(world, monkeypatch)
    monkeypatch.setattr(image_url, "check_fetchable", lambda _url, _token: None)
    monkeypatch.setattr(targets, "look_at_disks", lambda _run, health: {"disks": world.facts()})
    monkeypatch.setattr(targets.disk_gather, "read", lambda *_given, **_more: None)
    monkeypatch.setattr(targets.disk_gather, "identities", lambda _tools: world.facts())
    monkeypatch.setattr(targets.wiping, "wipe", wipe)


class _Run:
    """One run of hcloud_image_url from a controller's folder."""

    def __init__(self, world: World, folder: Path, words: Words, plan: Plan) -> None:
        self._world, self._folder, self._words, self._plan = world, folder, words, plan
        self._intent = folder / "intents" / f"{NAME}.json"

    def fleet(self, machine: dict[str, Any], state: str = "rescue", rearm: bool = False) -> dict[str, Any]:
        """One call of hcloud_rescue."""
        world = self._world
        wanted = [] if state != "rescue" or rearm else [{"name": NAME, "image_url": walk.url(self._plan.image)}]
        boot_options = BootOptions(
            [machine], state, ("reinstall", self._words.reinstall), rearm, False, 1, wanted=wanted,
            intents_dir=None if state != "rescue" else str(self._folder / "intents"),
        )  # fmt: skip
        (result,) = CloudRescue(_Api(world), Shell(world, self._folder), boot_options, ["key"], rescue_timeout=0).run()
        world.messages.append(result["msg"])
        return result

    def verifies(self) -> bool:
        """The whole playbook; whether it calls the system verified."""
        world = self._world
        made, world.made = world.made, {}
        if not world.status:
            world.create()
            made, world.made = world.made, {}
        world.cut_at("created")
        result = self.fleet({"name": NAME, "id": ID, **made})
        if result["failed"]:
            return False
        if result["installed"]:
            world.judge_drift(result, self._plan)
            return self._left_alone(result)
        if self._plan.between is not None:
            self._by_person(self._plan.between)
        world.cut_at("rescue")
        late, verified = self._installs(result)
        if late:
            again = self.fleet(result, rearm=True)
            if again["failed"]:
                return False
            if again["installed"]:
                return self._left_alone(again)
            late, verified = self._installs(again)
            if late:
                self.fleet(again, "disarmed")
        return verified

    def _by_person(self, act: Callable[[], None]) -> None:
        self._world.by_run = False
        act()
        self._world.by_run = self._world.boot.named = True  # the person's rescue and that of this run look the same

    def _left_alone(self, result: dict[str, Any]) -> bool:
        if result["proven"]:
            self._world.claim(result["installation"])
            return True
        return self._boot(result, result["installation"], None, False)

    def _common(self, result: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "known_hosts_dir": str(self._folder / "known_hosts"), "boot_state": result["boot_state"],
            "boot_state_since": result["boot_state_since"],
        }  # fmt: skip

    def _installs(self, result: Mapping[str, Any]) -> tuple[bool, bool]:
        """The SSH phase: whether the rescue is late, and whether the new system is verified."""
        world, common = self._world, self._common(result)
        flow = Flow({**walk.defaults(options.image_url_command_spec()), **common}, NAME)
        gate = {"previous_boot_id": result["previous_boot_id"], "addresses": (), "rescue_timeout": 0}
        try:
            gate_module.pass_rescue(cast(Any, Remote(world)), flow.known_hosts("rescue"), [], gate)
        except gate_module.GateClosed as exc:
            world.messages.append(str(exc))
            return True, False
        world.boot.named = world.boot.named or NAME in self._words.reinstall
        if self._plan.cut == walk.STOPPED:
            return False, False
        given = {"intent_file": str(self._intent), "consent": result["consent"] or "empty"}
        installation = result["installation"] or installed.new_installation()
        job = jobs.Job(
            self._plan.image.encode(), b"", [walk.url(self._plan.image), NAME, "sda"], "", 60,
            protocol.MARKER_AND_EXIT_CODE, "", installation, ["sda"], given["consent"], self._words.reinstall,
            intent_for(given, NAME, installation),
        )  # fmt: skip
        before = claims.note_begun(str(self._intent), surely=False)
        try:
            jobs.start_or_attach(job, world.run, str(world.base), self._prepare)
        except (jobs.JobError, _Left) as exc:
            world.messages.append(str(exc) or "the machine rebooted while the image command ran")
            if isinstance(exc, jobs.JobError) and not exc.begun:
                claims.take_back(str(self._intent), before)
            if isinstance(exc, _Left):
                self._by_person(world.start)
            return False, False
        world.cut_at("written")
        written = RescueRun._written(cast(Any, SimpleNamespace(_remote=_InRescue(world), _job=job)))
        walk.intents.note_written(str(self._intent), written, world.boot.done)
        if not world.boot.done:
            return False, False
        return False, self._boot(result, jobs.installation_in(str(world.base)), written, True)

    def _prepare(self, run: Any, job: jobs.Job) -> bool:
        changed = targets.prepare(run, job, str(self._world.base))
        self._world.cut_at("claimed")
        return changed

    def _boot(self, result: Mapping[str, Any], installation: str, written: Any, reboot: bool) -> bool:
        world = self._world
        if reboot and self._plan.cut == "rebooted":
            world.start()
            raise Cut
        return walk.boot(world, self._common(result), self._intent, installation, written, self._plan, reboot)


def run(world: World, folder: Path, words: Words, plan: Plan) -> bool:
    """One run of the playbook; returns whether it called the system verified."""
    world.words, world.plan, world.armed_by_this_run = words, plan, False
    world.in_run, world.by_run, world.hiccup = True, True, plan.hiccup
    world.boot.named = world.boot.named or NAME in words.reinstall
    verified = False
    try:
        verified = _Run(world, folder, words, plan).verifies()
    except Cut:
        pass
    else:
        if world.armed == "run" and world.armed_by_this_run:
            world.wrong.append("the run ended and left a rescue armed")
    world.in_run = world.by_run = world.hiccup = False
    if world.system is not None:
        world.system.ran = True
    return verified
