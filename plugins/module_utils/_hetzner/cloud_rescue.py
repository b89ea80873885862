# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The boot flow of cloud servers (what the module hcloud_rescue does)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._common import boot_states, installed, intents
from .._common import consent as consents
from .._common.text import counted, from_rfc3339
from . import boot_decision as decision
from .action_board import ActionBoard
from .api_failures import LOOK_EVERY, Deadline, FleetError, MachineError, Refused, TimeLimit
from .api_types import Action, Machine, RegisteredKey, Server
from .boot_decision import NONE, ObservedState
from .boot_flow import SHORT_LOOK, BootFleet, BootFlow, BootOptions
from .catalog import Catalog, Unfit
from .cloud_arming import Arming, started_for
from .cloud_client import PER_PAGE, Api
from .cloud_servers import ServerReads, Servers, addresses_of, as_ordered, is_known
from .fleet_run import MachineRun, explain, run_all
from .labels import INSTALLATION_LABEL, installation_of, is_ours
from .login_keys import public_half, resolve_keys
from .ssh import SILENT, Answer, Ssh

#: Seconds in which a rescue is disabled, however long a stuck action locks the server.
DISARMING_TAKES = 60.0
#: How long a system that was asked to reboot may go on answering.
REBOOT_GRACE = 60.0
#: A result that says "created in this run" counts for this long.
FRESH_FOR = 3600.0

#: The user named the machine, and nothing else allows it: what lies on the disks says whether that covers it.
NAMED = "named"

#: What a result of an earlier step hands on when this module has nothing new to say about it.
_HANDED_ON = ("server_type", "location", "image", "created", "adopted")
_KEPT_OF_FAILED = (
    "id",
    "ipv4",
    "ipv6",
    "ipv6_address",
    "private_net",
    "address",
    "status",
    "in_rescue",
    "boot_id",
    "previous_boot_id",
)

_PLANS = {
    decision.ARM_AND_START: "arm the rescue and power on",
    decision.ARM_AND_REBOOT: "arm the rescue and reboot",
    decision.ARM_AND_RESET: "arm the rescue and reset",
    decision.START: "power on into the armed rescue",
    decision.RESET: "reset into the armed rescue",
    decision.DISARM: "disarm the rescue",
    decision.LEAVE_RESCUE: "leave the rescue by a reboot",
}

_NOT_PUBLIC = (
    "server '%s' has no public address, and Hetzner's rescue has its network there; give it a primary IP (IPv6 will "
    "do), or make it of an image (hcloud_image_name)"
)
_DELETED = "server '%s' was deleted in the meantime; run the playbook again, which makes another one"
_WAY_ON = "Nothing was overwritten; run hcloud_rescue once more with rearm set to true"
_REFUSALS = {
    decision.REFUSE_FOREIGN: (
        "server '%(name)s' was not made by this collection; to keep what runs there, adopt it (kubenode_adopt: true); "
        "to write it, name it: %(word)s"
    ),
    decision.REFUSE_STATUS: "server '%(name)s' has the status '%(status)s'; run again when it is off or running",
    decision.REFUSE_STARTED: (
        "server '%(name)s' is off but was started before, so its disk may hold something; power it on; to "
        "overwrite it, name it: %(word)s"
    ),
    decision.REFUSE_SILENT: (
        "server '%(name)s' runs, but for %(limit)g s it was not clear which system: %(seen)s. Look at its console; "
        "to have it power-cycled into the rescue and overwritten, name it: %(word)s"
    ),
    decision.REFUSE_DENIED: (
        "server '%(name)s' runs a system that does not let us in: %(seen)s. Give the key it knows as ssh_private_key; "
        "to have it power-cycled into the rescue and overwritten, name it: %(word)s"
    ),
}


#: Seconds that a creation usually takes at most.
LONGEST_CREATION = 20.0


class NotArrived(MachineError):
    """The machine was started and its rescue did not answer in time; it can be armed again."""


class CloudRescue(BootFleet):
    """One call of hcloud_rescue. ``rescue_timeout``: seconds for a rescue to answer."""

    def __init__(
        self,
        api: Api,
        shell: Ssh,
        options: BootOptions,
        ssh_keys: Sequence[str] = (),
        private_key: str | None = None,
        rescue_timeout: float = 360,
    ) -> None:
        super().__init__(api, shell, options)
        self.servers = Servers(api)
        self.reads = ServerReads(self.servers)
        self.board = ActionBoard(api)
        self.rescue_timeout = rescue_timeout
        self.key_ids: list[int] = []
        self._ssh_keys = ssh_keys
        self._private_key = private_key
        self._found: dict[str, Server] = {}

    def run_of(self, machine: Machine) -> MachineRun:
        run, again = MachineRun.going_on(machine), self.is_again(machine)
        said: Mapping[str, Any] = machine
        run.result.update({key: said[key] for key in _HANDED_ON if key in said})
        run.result.update(in_rescue=None, boot_id=None, previous_boot_id=None, installed=False)
        run.result.update(installation="", proven=False, drift=[], used="")
        # A machine that missed its rescue has booted what it was made of: its consent and its arming still count.
        run.result["consent"] = (machine.get("consent") or "") if again else ""
        run.result["armed_here"] = bool(machine.get("armed_here")) and again
        run.result["fresh"] = bool(machine.get("fresh")) and again
        if machine.get("failed") and not again:
            run.result.update({key: said[key] for key in _KEPT_OF_FAILED if key in said})
            run.result.update(failed=True, msg=machine.get("msg") or "it failed in an earlier step")
        return run

    def is_again(self, machine: Machine) -> bool:
        """Whether this run armed the machine before and it did not arrive."""
        return bool(self.is_booting(machine) and machine.get("armed_here", True))

    def work(self, active: list[MachineRun]) -> None:
        self._look(active)
        run_all(self.api, active, self._bring_about)

    def _look(self, active: list[MachineRun]) -> None:
        """Read the servers and keys, and judge the budget; nothing is changed."""
        timeout = self.options.timeout
        deadline = Deadline(timeout, "the check of the input")
        names = [run.name for run in active]
        made = self._being_made(names)
        # One of them is read: the answer tells the limit and the clock of the API, and whether the platform is quick.
        read = self.servers.find([name for name in names if name not in made] or names[:1], deadline, ours_first=True)
        self._found = {**made, **read}
        if self.options.state != "rescue":
            return
        self._learn([name for name in read if self._is_made(name)])
        self.key_ids = [key["id"] for key in self._keys(active, deadline)]
        count = len(active)
        need = 2 * count + 8 * (1 + count // 25)
        work = f"arming and starting {counted(count, 'machine')}"
        plan = self.api.budget.plan(need, timeout, work)
        if not plan.possible:
            raise FleetError(f"API budget: {plan.message}")
        if not plan.fits and self.may_write:
            self.api.announce(need, work)

    def _being_made(self, names: list[str]) -> dict[str, Server]:
        """The servers that this run has just ordered, where reading them takes more than one request.

        Until the API has made a server, it is locked. That takes longer than these are old, so that the list would show
        nothing else; the action that makes it is waited for.
        """
        young = [self.machines[name] for name in names if _age(self.machines[name]) < LONGEST_CREATION]
        made = {one["name"]: as_ordered(one) for one in young if self._is_made(one["name"]) and is_known(one)}
        return made if self.options.state == "rescue" and len(made) > PER_PAGE else {}

    def _learn(self, made: list[str]) -> None:
        """Whether this platform is a quick one: servers that are ready long before one usually is say so."""
        young = [name for name in made if _age(self.machines[name]) < LONGEST_CREATION / 2]
        if any(self._found[name]["status"] != "initializing" for name in young):
            self.board.learn(quick=True)
        elif made:
            self.board.learn(quick=False)

    def _is_made(self, name: str) -> bool:
        """Whether the API was creating the server when the step before this one ended."""
        return (self.machines[name].get("create_action") or {}).get("status") == "running"

    def _keys(self, active: list[MachineRun], deadline: Deadline) -> list[RegisteredKey]:
        """The registered keys that may log in to the rescue; those of servers made just now were looked up for them."""
        known = [self.machines[run.name].get("ssh_keys") or [] if self._is_made(run.name) else [] for run in active]
        first = known[0] if all(one == known[0] for one in known) else []
        try:
            public_key = public_half(self._private_key) if self._private_key else None
            by_name = not any(isinstance(one, Mapping) for one in self._ssh_keys)
            if first and by_name and all(isinstance(key, dict) for key in first):
                with contextlib.suppress(Unfit):
                    return resolve_keys(self._ssh_keys, first, public_key, self._private_key)
            catalog = Catalog(self.api, deadline)
            return resolve_keys(
                self._ssh_keys, catalog.listed("ssh_keys"), public_key, self._private_key, catalog.ssh_keys_with
            )
        except Unfit as finding:
            raise FleetError(f"nothing was changed, because of: {finding}") from finding

    def _bring_about(self, run: MachineRun) -> None:
        given, server = self.machines[run.name], self._found.get(run.name)
        if server is None:
            self._missing(run, given)
            return
        run.result.update(addresses_of(server), id=server["id"], status=server["status"])
        run.show()
        if self.options.state == "rescue" and not (run.result["ipv4"] or run.result["ipv6"]):
            raise Refused(_NOT_PUBLIC % run.name)
        run.result["installation"] = given.get("installation") or installation_of(server)
        kept = self.intents.of(run.name)
        if kept and kept["installation"] == run.result["installation"]:
            run.result["used"] = self.words.used_by(run.name, kept)
        CloudFlow(self, run, given, server).bring_about()

    def _missing(self, run: MachineRun, given: Machine) -> None:
        if self.may_write or not given.get("created"):
            deleted = given.get("id") and self.may_write
            text = _DELETED if deleted else "there is no server '%s'; create it with hcloud_machine"
            raise Refused(text % run.name)
        run.result.update(changed=True, msg=f"would {_PLANS[decision.ARM_AND_START]}")


class CloudFlow(BootFlow):
    """One cloud server. ``server``: what the API says of it."""

    fleet: CloudRescue
    still_armed = ". The rescue may still be enabled for the next boot (%s): disable it in the console"

    def __init__(self, fleet: CloudRescue, run: MachineRun, given: Machine, server: Server) -> None:
        self.server = server
        super().__init__(fleet, run, given, self._observed(fleet, run, given, server))
        self._answer: Answer | None = None
        self._destination = boot_states.BOOTING_TO_RESCUE
        made = given.get("create_action")
        self._arming = Arming(fleet.servers, fleet.reads, fleet.board, fleet.intents, run, made)

    @staticmethod
    def _observed(fleet: CloudRescue, run: MachineRun, given: Machine, server: Server) -> ObservedState:
        fresh = bool(given.get("fresh")) and given.get("id") == server["id"]
        return ObservedState(
            status=server["status"],
            ours=is_ours(server) or bool(given.get("adopt")),
            reinstall=fleet.words.names(run.name) and not run.result["used"],
            rearm=fleet.is_again(given),
            fresh=bool(run.result["fresh"]),
            armed=bool(server.get("rescue_enabled")),
            armed_here=bool(given.get("armed_here")),
            # one that is armed already was armed by another run
            never_started=True if fresh and _age(given) < FRESH_FOR and not server.get("rescue_enabled") else None,
            unproven=fleet.intents.unproven(run.name, run.result["installation"]),
        )

    def own_steps(self) -> dict[str, Callable[[], None]]:
        return {
            decision.SETTLE: self._settle,
            decision.ASK_HISTORY: self._ask_history,
            decision.ARM_AND_START: self._arm_and_start,
            decision.ARM_AND_REBOOT: self._arm_and_reboot,
            decision.ARM_AND_RESET: self._arm_and_reset,
            decision.START: self._power_on,
            decision.RESET: self._reset_and_arrive,
        }

    @property
    def answer(self) -> Answer | None:
        return self._answer

    # --- observe

    def _settle(self) -> None:
        """Wait until the server is neither being created nor in between two states."""
        action: Action = {**(self.given.get("create_action") or Action()), "status": "running"}
        if self.seen.status == "initializing" and action.get("id"):
            self._arming.made = self.fleet.board.wait(action, self.deadline, since_answer=_age(self.given))
            self.seen.status = "off"
            return
        pause = 2.0
        while self.seen.status in decision.PASSING:
            self.deadline.sleep(pause, f"the server's status is still '{self.seen.status}'")
            pause = min(5.0, pause * 1.5)
            server = self.fleet.servers.by_id(self.server, self.deadline)
            if server is None:
                raise MachineError("the server vanished; create it again with hcloud_machine")
            self.server = server
            self.seen.status, self.seen.armed = server["status"], bool(server.get("rescue_enabled"))
        self.result["status"] = self.seen.status

    def _ask_history(self) -> None:
        self.seen.never_started = self._arming.read_history(self.server, self.deadline)

    def ask_rescue(self) -> None:
        if not self.fleet.intents.kept:
            # Nothing is written here; a later step that writes may use only disks that hold nothing.
            self.seen.intended = consents.EMPTY
            return
        intent = self.fleet.intents.of(self.run.name)
        history = self.fleet.servers.history(self.server, self.deadline)
        shown = self._answer.intent if self._answer is not None else None
        self.seen.intended = started_for(self.run.name, self.result["installation"], intent, shown, history)

    def probe(self) -> Answer:
        if not self.address:
            raise MachineError(f"machine '{self.run.name}' has no address, so that SSH cannot reach it")
        return self.fleet.shell.probe(self.run.name, self.address)

    def look_seconds(self) -> float:
        """Not long where the machine is rebooted in any case, or shows nothing even when it is well."""
        seconds = self.fleet.rescue_timeout
        hurry = self.seen.reinstall or self.seen.rearm or self.seen.unproven == NONE
        return min(seconds, SHORT_LOOK) if hurry else seconds

    def note(self, answer: Answer) -> None:
        """Write into the result who answered; the host key of a rescue is pinned on first contact."""
        super().note(answer)
        self._answer = answer
        if answer.in_rescue:
            self.fleet.shell.pin(self.run.name)

    # --- nothing to boot

    def attach(self) -> None:
        """Use the rescue that answers, and say on what ground something may be written in it."""
        self.run.timeline.found(boot_states.BOOTING_TO_RESCUE)
        self.result["msg"] = "is in the rescue"
        if self.seen.rearm:
            return
        if self.seen.intended:
            # Of the user's permission only what had begun is left, and the rescue itself shows that.
            fresh = consents.FRESH in self.seen.intended.split("+")
            self.result["consent"] = consents.FRESH if fresh else consents.EMPTY
        else:
            self.result["consent"] = NAMED
            if self.fleet.may_write:
                self._begin(consents.REINSTALL)

    def leave(self) -> None:
        if self.seen.status == "off" or self.options.state == "disarmed" or self._answer is None:
            self.result["msg"] = f"not armed; the server is {self.seen.status}"
            return
        self.run.timeline.found(boot_states.OPERATING_SYSTEM_RUNNING)
        self.result.update(installed=True, msg=f"left alone: {self._answer.describe()}")
        kind, place = self.server.get("server_type") or {}, self.server.get("location") or {}
        store = self.fleet.intents
        self.result["installation"] = self.result["installation"] or store.unfinished(self.run.name)
        expected, record = self.result["installation"], self._answer.installed
        before = store.replaced(self.run.name, expected)
        if before and installed.installation_of(record) == before:
            # It was armed for another one, of which nothing was written: what was there is there still.
            self.result["installation"] = before
            if self.fleet.may_write:
                self._label(before)
        if self.result["used"]:
            self.result["msg"] += f"; {self.result['used']}"
        if self.seen.armed and self.seen.rearm and self.fleet.may_write:
            self._disable()
            self.result["msg"] += "; its rescue is disabled again"
        elif self.seen.armed:
            # A person enabled it, or a run that was killed; the next reboot would be a surprise.
            self.result["warning"] = "its rescue is enabled, so its next boot leads there; disable it to prevent that"
        if self.seen.locked_out:
            # Only our own intent shows what runs.
            self.result["msg"] += f"; not verified, as kubenode_proof: {self.seen.unproven} says"
            record = store.of(self.run.name)
        self.compare(record, {"server_type": kind.get("name"), "location": place.get("name")})
        if self.fleet.may_write and not self.seen.locked_out:
            store.seen(self.run.name, self.result["proven"] and self.result["installation"] == expected)

    def disarm(self) -> None:
        self._disable()
        self.result["msg"] = "disarmed"
        if self.options.state == "disarmed":
            self.fleet.intents.gave_up(self.run.name, for_good=True)
        if self._answer is not None and self.seen.locked_out:
            raise Refused(f"disarmed, but which system runs is unknown: {self._answer.describe()}")

    def leave_rescue(self) -> None:
        self.remember()
        if self.seen.armed:
            self.disarm()
        self._destination = boot_states.BOOTING_TO_REAL_OS
        self._reboot()
        if self.options.prove:
            self._prove()
            self.run.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)
        self.result["msg"] = "left the rescue"

    # --- arm and boot

    def begin(self, step: str) -> None:
        self.result.update(changed=True, diff=self.diff(step))

    def _arm_and_start(self) -> None:
        # Nothing but what the server was made of has been on its disk.
        self.result["fresh"] = self.seen.never_started is True or self.result["fresh"]
        self._new_installation()
        self._arm()
        self._power_on()

    def _arm_and_reboot(self) -> None:
        self._new_installation()
        self.remember()
        self._arm()
        self._reboot()
        self._arrive()

    def _arm_and_reset(self) -> None:
        self._new_installation()
        self.remember()
        self._arm()
        self._reset_and_arrive()

    def _reset_and_arrive(self) -> None:
        self.remember()
        self._hard_reset()
        self._arrive()

    def _new_installation(self) -> None:
        """The arming begins another installation, except for a new server and a second try."""
        result = self.result
        if self.seen.rearm and result["installation"]:
            return
        named = consents.REINSTALL if self.fleet.words.names(self.run.name) else ""
        if result["fresh"] and result["installation"]:
            result["consent"] = consents.joined(consents.FRESH, named)
            self.fleet.intents.open(self.run, result["consent"], server=self.server["id"])
            return
        # What was seen may run from another disk, or nothing was seen: the look at the disks decides.
        result["consent"] = NAMED if named else ""
        self._begin(named)

    def _begin(self, consent: str) -> None:
        """Another installation of a machine that had one before."""
        store, there = self.fleet.intents, installation_of(self.server)
        before = store.replaced(self.run.name, there) or there
        self._label(installed.new_installation())
        store.open(self.run, consent, server=self.server["id"], replaces=before, goes=self._shown_by_nothing())

    def _label(self, installation: str) -> None:
        self.result["installation"] = installation
        labels = dict(self.server.get("labels") or {}, **{INSTALLATION_LABEL: installation})
        self.server = self.fleet.servers.relabel(self.server, labels, self.deadline)

    def _shown_by_nothing(self) -> Any:
        """UUIDs of a system without a record that the user names by the id of its installation."""
        name = self.run.name
        kept = self.fleet.intents.of(name) or {}
        record = intents.record_or_kept(None, kept, name, kept.get("holds") or [])
        return kept.get("holds") if record and self.fleet.words.covers(name, record) else []

    def _disable(self, deadline: Deadline | None = None) -> None:
        self._arming.disarm(self.server, deadline or self.deadline)

    def _arm(self) -> None:
        """Arm the rescue for the next boot and wait until it is."""
        self._arming.arm(self.server, self.fleet.key_ids, self.deadline, armed_before=bool(self.seen.armed))

    def _power_on(self) -> None:
        self._arming.look_again(self.server, self.deadline)
        action = self.fleet.servers.power_on(self.server, self.deadline)
        self._arming.look_again(self.server, self.deadline, action)
        self._booting()
        self._arrive()

    def _hard_reset(self) -> None:
        """Reset and wait, so that the system that answers afterwards has booted since."""
        action = self.fleet.servers.reset(self.server, self.deadline)
        self.fleet.board.wait(action, self.deadline)
        self._booting()

    def _reboot(self) -> None:
        """Reboot by SSH, which costs no request; one that does not obey, or does not show which it is, is reset."""
        previous = self.result["previous_boot_id"]
        if (
            self.address
            and self.is_server()
            and self.fleet.shell.reboot(self.run.name, self.address)
            and self._went_down(previous)
        ):
            self._booting()
        else:
            self._hard_reset()

    def _went_down(self, previous: str | None) -> bool:
        """Whether a system that was asked to reboot stopped answering under its old boot id."""
        deadline = Deadline(REBOOT_GRACE, "the reboot")
        while deadline.left() > LOOK_EVERY:
            answer = self.probe()
            if answer.kind == SILENT or (answer.boot_id and answer.boot_id != previous):
                return True
            deadline.sleep(LOOK_EVERY, "")
        return False

    def _booting(self) -> None:
        self.run.timeline.to(self._destination)
        self.result["status"] = "running"

    # --- prove

    def _arrive(self) -> None:
        self.result.update(in_rescue=None, boot_id=None)
        if self.options.prove:
            self._prove()
        self.result["msg"] = self.arrived_in_words()

    def _prove(self) -> None:
        """Wait until a new boot of the right system answers; raises NotArrived with what was seen instead."""
        rescue = self._destination == boot_states.BOOTING_TO_RESCUE
        deadline = Deadline(self.fleet.rescue_timeout, "the rescue" if rescue else "the system on the disk")
        way_on = _WAY_ON if rescue else "Look at its console; the rescue is not armed any more"
        self.result["in_rescue"] = False
        while True:
            answer = self.probe()
            self.note(answer)
            if answer.boot_id not in (None, self.result["previous_boot_id"]):
                if answer.in_rescue == rescue:
                    return
                raise NotArrived(f"{deadline.what} did not come up: {answer.describe()}. {way_on}")
            try:
                deadline.sleep(LOOK_EVERY, answer.describe())
            except TimeLimit as error:
                raise NotArrived(f"{error}. {way_on}") from error

    # --- how it ends

    def disarm_again(self) -> None:
        self._disable(Deadline(min(self.options.timeout, DISARMING_TAKES), "the disarmed rescue"))
        self._arming.may_be_armed = False

    def end_of(self, error: Exception) -> Exception | None:
        """A rescue that did not come ends no boot state; after other errors nothing stays armed."""
        if isinstance(error, NotArrived):
            self.run.fail(f"{error}{self._given_up() if self.options.rearm else ''}", provisioning=False)
            return None
        if getattr(error, "code", "") == "not_found":
            return MachineError(_DELETED % self.run.name)
        kind = Refused if isinstance(error, Refused) else MachineError
        return kind(f"{explain(error)}{self._given_up()}")

    def _given_up(self) -> str:
        """Take back what is armed: the next boot of the machine is not ours. Returns a clause for the message."""
        if not self.fleet.may_write or not (self._arming.may_be_armed or (self.seen.rearm and self.seen.armed)):
            return ""
        clause = self.give_up()
        self.fleet.intents.gave_up(self.run.name, for_good=False)
        return clause

    def refusal(self, step: str) -> str:
        name, used = self.run.name, self.result.get("used")
        if step == decision.REFUSE_RESCUE:
            text = self.rescue_of_others(f"server '{name}'")
        else:
            text = _REFUSALS[step] % {
                "name": name,
                "status": self.seen.status,
                "seen": self._answer.describe() if self._answer is not None else "",
                "limit": self.fleet.rescue_timeout,
                "word": self.word_to_write(),
            }
        return text + (f". Besides, {used}" if used else "")

    def plan_of(self, step: str) -> str:
        return _PLANS[step]

    def was_armed(self, step: str) -> bool:
        return step in (decision.DISARM, decision.START, decision.RESET)


def _age(machine: Machine) -> float:
    """Seconds since a machine of this run came into its boot state; many when that is not known."""
    since = machine.get("boot_state_since")
    return time.time() - from_rfc3339(since) if since else FRESH_FOR
