# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The boot flow of dedicated servers (what the module robot_rescue does)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .._common import boot_states, installed, intents, text
from .._common import consent as consents
from .._common.ssh_access import key_blob
from . import boot_decision as decision
from .api_failures import Deadline, FleetError, HandedBack, LeftAlone, MachineError, Permanent, Refused
from .api_types import Machine, Reset
from .boot_decision import ObservedState
from .boot_flow import SHORT_LOOK, BootFleet, BootFlow, BootOptions
from .catalog import Unfit
from .fleet_run import MachineRun, explain, run_all
from .login_keys import choose_keys, known_among, md5_fingerprint, register
from .reset_escalation import ASK_EVERY, PUBLISHING_TAKES, EscalationOptions, RescueProbe, ResetEscalation, ways_out
from .robot_client import RESET, WINDOW, ResetPlan, Robot
from .robot_servers import (
    MAY_RESET,
    ONCE,
    SSH,
    WOL,
    BootRoutes,
    facts,
    find,
    input_findings,
    named_by,
    read_servers,
    reset_types,
)
from .ssh import SYSTEM, Answer, Ssh

_UNKNOWN: dict[str, Any] = {
    "server_number": None,
    "server_name": None,
    "ipv4": None,
    "ipv6": None,
    "ipv6_address": None,
    "product": None,
    "reset_types": [],
    "in_rescue": None,
    "installed": False,
    "boot_id": None,
    "previous_boot_id": None,
    "resets": [],
    "host_keys": [],
    "permanent": False,
    "armed": False,
    "installation": "",
    "proven": False,
    "drift": [],
    "used": "",
    "consent": "",
}
#: Steps that arm the rescue.
_ARMING = (decision.ARM_AND_REBOOT, decision.ARM_AND_RESET, decision.CONTINUE)
#: Seconds for which an armed rescue waits for its boot.
_ARMED = 3600.0


@dataclass
class RobotOptions:
    """What robot_rescue is asked for besides `BootOptions`; names are those of its options."""

    #: Seconds for each type of reset, and until a machine that does not answer counts as silent.
    limits: Mapping[str, float]
    #: The public key and the private key that open the rescue; one of them is enough, and none where an agent has one.
    key: tuple[str | None, str | None]
    key_name: str = "kubenode.provision"
    look_timeout: float = 15
    #: Whether the rescue's host keys must be those that Robot publishes.
    strict: bool = True
    give_back_after: float = 0
    #: Whether the rescue is only looked at, and nothing is installed.
    look_only: bool = False
    #: Whether resets above the hourly limit are waited for.
    pace: bool = False


class RobotRescue(BootFleet):
    """One call of robot_rescue."""

    def __init__(self, api: Robot, shell: Ssh, options: BootOptions, more: RobotOptions) -> None:
        super().__init__(api, shell, options)
        self.more = more
        self._public_keys: list[str] = []
        self._flows: dict[str, RobotFlow] = {}

    def more_findings(self) -> list[str]:
        """What is wrong with the servers and keys that are named."""
        findings = input_findings(self.options.machines)
        try:
            if self.options.state == "rescue":
                self._public_keys = choose_keys(*self.more.key)
        except Unfit as finding:
            findings.append(str(finding))
        return findings

    def run_of(self, machine: Machine) -> MachineRun:
        since = machine.get("boot_state_since")
        try:
            run = MachineRun(
                machine["name"],
                state=machine.get("boot_state") or boot_states.UNSET,
                since=text.from_rfc3339(since) if since else None,
            )
            run.result.update(_UNKNOWN)
            resets: list[Reset] = [{"way": reset["way"], "at": reset["at"]} for reset in machine.get("resets") or []]
            ages = [time.time() - text.from_rfc3339(reset["at"]) for reset in resets]
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise FleetError(
                f"machine '{machine['name']}': boot_state, boot_state_since or resets is none a module of this "
                f"collection returned ({error}); leave them out"
            ) from error
        if machine.get("first_contact"):
            run.result["first_contact"] = machine["first_contact"]
        if any(reset["way"] not in self.more.limits for reset in resets):
            raise FleetError(f"machine '{machine['name']}': resets names a way that does not exist; leave it out")
        for reset, age in zip(resets, ages):
            if reset["way"] not in (SSH, WOL) and 0 <= age < WINDOW and not self.api.limits.kept:
                self.api.limits.sent(RESET, age)
        if self.is_again(machine):
            run.result["resets"] = resets
        elif machine.get("failed"):
            said: Mapping[str, Any] = machine
            run.result.update({key: said[key] for key in _UNKNOWN if key in said})
            run.result.update(failed=True, msg=machine.get("msg") or "it failed in an earlier step")
        return run

    def is_again(self, machine: Machine) -> bool:
        """Whether an earlier call armed the machine, it did not arrive, and it may be tried again."""
        return self.is_booting(machine) and not machine.get("in_rescue") and not machine.get("permanent")

    def work(self, active: list[MachineRun]) -> None:
        """Find the servers, look at all machines and decide, judge what that needs, and bring each about."""
        found = self._find(active)
        run_all(self.api, found, self._decide, last=False)
        going = [run for run in found if not run.result["failed"]]
        self._prepare([self._flows[run.name] for run in going if self._flows[run.name].step in _ARMING])
        run_all(self.api, going, lambda run: self._flows[run.name].bring_about(self._flows[run.name].step))

    def _find(self, runs: list[MachineRun]) -> list[MachineRun]:
        """Read the servers of the account, once; returns the runs that have one."""
        # The first request is made alone, so that wrong credentials cost one failed login and no more.
        servers = read_servers(self.api, Deadline(self.options.timeout, "the list of servers"))
        found = []
        owners: dict[int, list[str]] = {}
        for run in runs:
            try:
                server = find(self.machines[run.name], servers)
                if server.get("status") not in (None, "ready"):
                    raise Refused(f"the server's status is '{server['status']}'; run again when it is ready")
            except Refused as error:
                run.fail(error)
                continue
            named = f"'{run.name}' ({named_by(self.machines[run.name])})"
            owners.setdefault(server["server_number"], []).append(named)
            run.result.update(facts(server))
            found.append(run)
        twice = [
            f"the machines {text.listed(machines, 10)} are the same server {number}"
            for number, machines in owners.items()
            if len(machines) > 1
        ]
        if twice:
            raise FleetError(
                f"nothing was changed, because of: {'; '.join(twice)}. Leave each server to one of them, and correct "
                "how the others are found, or take them out"
            )
        return found

    def _decide(self, run: MachineRun) -> None:
        """Find out who answers, and decide; nothing is changed."""
        flow = self._flows[run.name] = RobotFlow(self, run, self.machines[run.name])
        flow.step = flow.decide()
        flow.refuse(flow.step)

    def _prepare(self, flows: list[RobotFlow]) -> None:
        """Read what arming needs, judge the hourly limit, and register the key; nothing is changed before that."""
        if not flows:
            return
        deadline = Deadline(self.options.timeout, "the lists of resets and keys")
        unknown = [flow for flow in flows if not flow.resets.offered]
        if len(unknown) == 1 and unknown[0].seen.answer == decision.SILENT:
            # As many requests as for the list, which does not say whether a server is off.
            unknown.pop().resets.is_off()
        listed = self.api.read_list("/reset", "reset", deadline) if unknown else []
        types = {item["server_number"]: item for item in listed if isinstance(item.get("server_number"), int)}
        for flow in unknown:
            flow.resets.offered = reset_types(types.get(flow.result["server_number"], {}))
        for flow in flows:
            flow.result["reset_types"] = list(flow.resets.offered)
        self._judge_limit(flows)
        try:
            known = known_among(self._public_keys, self.api.read_list("/key", "key", deadline))
        except Unfit as finding:
            raise FleetError(f"nothing was changed, because of: {finding}") from finding
        if self.may_write and not known:
            known = self._public_keys
            register(self.api, known[0], self.more.key_name, deadline)
        for flow in flows:
            flow.resets.fingerprints = [md5_fingerprint(key) for key in known]

    def _judge_limit(self, flows: list[RobotFlow]) -> None:
        kinds = [flow.first_reset() for flow in flows if flow.step != decision.CONTINUE]
        limits = self.api.limits
        plan = ResetPlan(
            len([kind for kind in kinds if kind not in (None, SSH)]), limits.left(RESET), limits.hourly(RESET)
        )
        if not plan.fits and not self.more.pace:
            raise FleetError(
                f"nothing was changed, because of: {plan.message}. Name fewer machines (for example with --limit), "
                "run again for the others later, or set on_reset_limit to pace"
            )
        if not plan.fits and self.may_write and self.api.news is not None:
            self.api.news.plan(plan.message)


class RobotFlow(BootFlow):
    """One dedicated server."""

    fleet: RobotRescue
    still_armed = ". The rescue may still be armed for the next boot (%s): disarm it in Robot"

    def __init__(self, fleet: RobotRescue, run: MachineRun, given: Machine) -> None:
        noted = fleet.intents.of(run.name)
        #: What an earlier run knew of its system.
        self._proven = "proved" if fleet.shell.proved_system(run.name) else ""
        if noted and noted.get("contact") and noted.get("proven"):
            self._proven = self._proven or "saw"
        self._kept = None if noted is None or noted.get("contact") else noted
        run.result["used"] = fleet.words.used_by(run.name, self._kept)
        #: Why the option first_contact counts no more.
        self._contact_used = contact_used(run.name, given.get("first_contact"), noted)
        super().__init__(fleet, run, given, self._observed(fleet, run, given))
        #: What was decided.
        self.step = ""
        options, more = fleet.options, fleet.more
        self.routes = BootRoutes(fleet.api, run.name, run.result["server_number"])
        self.rescue_probe = RescueProbe(fleet.shell, self.routes, run.name, self.address or "", more.strict)
        self.resets = ResetEscalation(
            EscalationOptions(more.limits, options.timeout, options.prove, more.give_back_after),
            run,
            fleet.shell,
            self.routes,
            self.rescue_probe,
            self.address,
            self.may_go,
            self.note,
        )
        self.resets.armed_before = self.seen.rearm or intents.is_open(self._kept, run.name)

    def _observed(self, fleet: RobotRescue, run: MachineRun, given: Machine) -> ObservedState:
        rearm, word = fleet.is_again(given), given.get("first_contact")
        return ObservedState(
            reinstall=fleet.words.names(run.name) and not run.result["used"],
            rearm=rearm,
            proven=bool(self._proven),
            may_reset=word in (MAY_RESET, ONCE) and not self._contact_used,
            # For a look nothing is finished: it may go on to the power button, or to no end, as the user says.
            unproven="" if fleet.more.look_only or rearm else fleet.intents.unproven(run.name),
            armed=False if fleet.options.state == "rescue" else None,
            armed_here=True,
        )

    def own_steps(self) -> dict[str, Callable[[], None]]:
        return {
            decision.ASK_ARMED: self._ask_armed,
            decision.ASK_POWER: self._ask_power,
            decision.ASK_KEYS: self._ask_keys,
            decision.ARM_AND_REBOOT: lambda: self._boot(self._arm_and_reset),
            decision.ARM_AND_RESET: lambda: self._boot(self._arm_and_reset),
            decision.CONTINUE: lambda: self._boot(self._go_on),
        }

    @property
    def answer(self) -> Answer | None:
        return self.rescue_probe.answer

    # --- observe

    def note(self, answer: Answer) -> None:
        """Write down who answered, also for later runs: a system that was seen has had its first contact."""
        super().note(answer)
        changes = self.options.state == "rescue" and self.fleet.may_write and not self.fleet.more.look_only
        if changes and answer.kind == SYSTEM and not answer.in_rescue:
            self.fleet.intents.contact(self.run.name, installed.installation_of(answer.installed))

    def probe(self) -> Answer:
        if not self.address:
            raise MachineError("the server has no public address, so that SSH cannot reach it")
        return self.rescue_probe.look()

    def look_seconds(self) -> float:
        """Not long where the machine is rebooted in any case."""
        seconds = self.fleet.more.look_timeout
        return min(seconds, SHORT_LOOK) if self.seen.reinstall or self.seen.rearm else seconds

    def _ask_armed(self) -> None:
        answer = self.routes.rescue(self.deadline_for("the state of the rescue"))
        self.seen.armed = self.result["armed"] = answer.get("active") is True

    def _ask_power(self) -> None:
        # For a look nothing is switched on, either.
        self.seen.off = not self.fleet.more.look_only and self.resets.is_off()

    def ask_rescue(self) -> None:
        answer, kept = self.answer, self._kept
        if self.fleet.more.look_only or not self.fleet.intents.kept or answer is None:
            # Nothing will be written there without a look at its disks, so it does not matter who started it.
            self.seen.intended = consents.EMPTY
            # A person may be at work in it: what permits a first contact does not permit to start it again.
            self.seen.may_reset = False
            return
        shown = self.fleet.shell.keys_of_last_probe(self.run.name)
        ours = started_for(self.run.name, kept, answer, shown)
        self.seen.intended = consents.EMPTY if ours else ""
        if kept and ours:
            self.result["installation"] = kept["installation"]

    def _ask_keys(self) -> None:
        """Prove the host keys of the rescue that answers; one that has run for long has had time to be published."""
        given, kept = self.given.get("host_keys") or [], (self._kept or {}).get("armed") or {}
        keys = [key for key in [*given, *(kept.get("host_keys") or [])] if isinstance(key, str)]
        known = [key for key in keys if key_blob(key) is not None]
        uptime = (self.answer.origin.uptime if self.answer is not None else None) or 0.0
        seconds = max(ASK_EVERY, PUBLISHING_TAKES + ASK_EVERY - uptime)
        proven = self.rescue_probe.wait_for_proof(known, Deadline(seconds, "the proof of the rescue"))
        self.seen.keys_proven = proven
        self.result["host_keys"] = list(self.rescue_probe.proven)

    # --- nothing to boot

    def attach(self) -> None:
        """Use the rescue that answers, when its host keys are proven."""
        if not self.seen.keys_proven:
            raise MachineError(
                "a rescue answers, and Robot does not tell its host keys, so it was left as it is. "
                f"{ways_out(self.run.name)}"
            )
        # A look begins no installation, also when the user names the machine.
        begins = self.fleet.may_write and not self.fleet.more.look_only
        if begins and not (self.seen.intended or self.seen.rearm):
            # The user named it; what lies on its disks will say whether that still covers it.
            self.result["installation"] = installed.new_installation()
            self.fleet.intents.open(
                self.run,
                self.fleet.words.variable,
                server=self.result["server_number"],
                attached=self.result["boot_id"],
            )
        elif begins:
            self._reached()
        self.run.timeline.found(boot_states.BOOTING_TO_RESCUE)
        self.result["msg"] = "is in the rescue"

    def leave(self) -> None:
        if self.options.state == "disarmed":
            self.result["msg"] = "not armed"
            return
        if self.options.state == "os" and self.seen.locked_out:
            self.result["msg"] = f"not armed; which system runs is unknown: {self.rescue_probe.words}"
            return
        self.run.timeline.found(boot_states.OPERATING_SYSTEM_RUNNING)
        self.result.update(installed=True, in_rescue=False, msg=f"left alone: {self.rescue_probe.words}")
        store, answer = self.fleet.intents, self.answer
        record = answer.installed if answer is not None else None
        unproven = self.seen.unproven if self.seen.locked_out else ""
        if unproven:
            # Only our own intent shows what runs.
            record = store.of(self.run.name)
            self.result["msg"] += f"; not verified, as kubenode_proof: {unproven} says"
        self.result["installation"] = store.unfinished(self.run.name)
        if self.result["used"]:
            self.result["msg"] += f"; {self.result['used']}"
        self.compare(record, {})
        if self.options.state == "rescue" and self.fleet.may_write and not unproven:
            store.seen(self.run.name, self.result["proven"])
            store.contact(self.run.name, installed.installation_of(record), proven=self.result["proven"])

    def disarm(self) -> None:
        self.result.update(changed=True, diff=self.diff(decision.DISARM))
        self._disarm_rescue()
        if self.options.state == "disarmed":
            self.result["msg"] = "disarmed"
        elif self.seen.locked_out:
            self.result["msg"] = f"disarmed; which system runs is unknown: {self.rescue_probe.words}"
        else:
            self.leave()
            self.result["msg"] = f"disarmed, and {self.result['msg']}"

    def leave_rescue(self) -> None:
        """Reboot the machine out of its rescue by SSH, and wait until another system answers."""
        if self.seen.armed:
            self._disarm_rescue()
        self.result.update(changed=True, diff=self.diff(decision.LEAVE_RESCUE))
        self.remember()
        self.run.timeline.to(boot_states.BOOTING_TO_REAL_OS)
        if not self.address or not self.fleet.shell.reboot(self.run.name, self.address):
            raise MachineError("the rescue did not take the order to reboot; try again, or reset the machine")
        if self.options.prove:
            self._wait_for_system()
        self.result["msg"] = "left the rescue" if self.options.prove else "is leaving the rescue (not proved)"

    def _wait_for_system(self) -> None:
        answer = self.rescue_probe.wait_for_another_boot(
            self.result["previous_boot_id"], Deadline(self.fleet.more.limits[SSH], "the system on the disk")
        )
        self.note(answer)
        self.result["in_rescue"] = False
        self.run.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)

    def _disarm_rescue(self) -> None:
        self.routes.disarm_kind("rescue", self.deadline_for("the disarmed rescue"))
        self.result["armed"] = False

    # --- arm and boot

    def begin(self, step: str) -> None:
        """Each step says itself what it changes, as soon as it does."""

    def first_reset(self) -> str | None:
        """The type of reset that comes first; None when the server can be reset by none."""
        by_ssh = self.seen.lets_us_in and self.seen.reinstall and self.is_server() is True
        return self.resets.next_type(by_ssh=by_ssh)

    def _boot(self, boot: Callable[[], None]) -> None:
        """Send the machine into its rescue, for an installation that is opened before."""
        self.result["diff"] = self.diff(self.step)
        self.result["installation"] = self.given.get("installation") or installed.new_installation()
        words = self.fleet.words
        consent = consents.joined(words.variable if words.names(self.run.name) else consents.EMPTY)
        self.fleet.intents.open(self.run, consent, server=self.result["server_number"])
        boot()
        self._reached()
        self.result["msg"] = self.arrived_in_words()

    def _arm_and_reset(self) -> None:
        """Arm, and escalate from the first type of reset."""
        self.remember()
        kind = self.first_reset()
        if kind is None:
            raise Permanent(
                f"Robot offers no reset for it that can be used (offered: {', '.join(self.resets.offered or ['none'])})"
            )
        self.run.timeline.to(boot_states.ENABLING_RESCUE)
        if kind != SSH and self.resets.wait_for_turn():
            # What was silent an hour ago may be a running system by now, and one that the user did not name.
            self.ask_who_answers()
            if self.seen.answer == decision.RESCUE and not self.seen.reinstall:
                raise Refused(
                    "it was booted into a rescue while this run waited for its turn: a person may be repairing it. It "
                    "was left as it is"
                )
            if self.seen.answer == decision.RESCUE:
                self._ask_keys()
                if self.seen.keys_proven:
                    return
            if decision.towards_rescue(self.seen) == decision.LEAVE:
                raise LeftAlone(f"left alone: {self.rescue_probe.words}")
            self.remember()
        self.resets.arm()
        self.resets.escalate(kind)

    def _go_on(self) -> None:
        self.result["previous_boot_id"] = self.given.get("previous_boot_id")
        self.run.timeline.to(boot_states.BOOTING_TO_RESCUE)
        self.resets.go_on()

    def _reached(self) -> None:
        """From now on this boot of the rescue is the one that the intent is for, and no later one."""
        if self.result["in_rescue"]:
            self.fleet.intents.armed(self.run.name, host_keys=self.result["host_keys"], boot=self.result["boot_id"])

    # --- how it ends

    def disarm_again(self) -> None:
        """Take back what this run or the one before it armed."""
        if not (self.result["armed"] or self.seen.rearm):
            return
        if self.resets.still_armed():
            self._disarm_rescue()
        self.result["armed"] = False

    def end_of(self, error: Exception) -> Exception | None:
        """After an error nothing stays armed: the next boot of the machine is not ours."""
        if isinstance(error, HandedBack):
            self.result.update(in_rescue=False, armed=True, msg=str(error))
            return None
        if isinstance(error, LeftAlone):
            self.leave()
            self.result["msg"] = str(error)
            return None
        armed = self.result["changed"] or self.seen.rearm
        if self.step not in _ARMING or not self.fleet.may_write or not armed:
            return error
        clause = self.give_up() if self.result["armed"] or self.seen.rearm else ""
        permanent = bool(getattr(error, "permanent", False))
        self.fleet.intents.gave_up(self.run.name, permanent)
        kind = Permanent if permanent else Refused if isinstance(error, Refused) else MachineError
        return kind(f"{explain(error)}{clause}")

    def refusal(self, step: str) -> str:
        if step == decision.REFUSE_RESCUE:
            used = self.result["used"]
            return self.rescue_of_others("it") + (f". Besides, {used}" if used else "")
        if step == decision.REFUSE_SILENT:
            did = self._proven or "finished"
            what = "into its rescue, where nothing is written" if self.fleet.more.look_only else "and written again"
            return (
                f"an earlier run {did} its new system, and now it does not let us in ({self.rescue_probe.words}): "
                f"it may be a node whose network or SSH is down. Look at it; to have it reset {what}, "
                f"name it: {self.word_to_write()}"
            )
        used = self._contact_used
        # A look does not ask for the power; of any other one that is refused here, Robot does not say that it is off.
        unasked = self.fleet.more.look_only and self.seen.answer == decision.SILENT
        off = ", nor whether it is switched off" if unasked else ""
        return (
            f"we cannot tell what it runs ({self.rescue_probe.words}){off}, so it was not reset and nothing is armed. "
            "If no one uses it, permit its reset into the rescue, which changes no disk: -e "
            f"kubenode_first_contact=reset{used and '. ' + used}"
        )

    def plan_of(self, step: str) -> str:
        if step == decision.DISARM:
            return "disarm the rescue"
        if step == decision.LEAVE_RESCUE:
            return "leave the rescue by a reboot over SSH"
        if step == decision.CONTINUE:
            return "wait for the rescue, and arm and reset again if it does not come"
        kind = self.first_reset()
        reset = "reboot by SSH" if kind == SSH else f"reset by {kind}" if kind else "fail: no reset is offered"
        active = list(self.routes.active(self.deadline_for("what Robot has for the next boot")).values())
        replaced = f"; it would replace what Robot has for the next boot: {text.listed(active)}" if active else ""
        return f"arm the rescue and {reset}{replaced}"

    def was_armed(self, step: str) -> bool:
        return bool(self.result["armed"])


def contact_used(name: str, word: str | None, kept: Mapping[str, Any] | None) -> str:
    """Why the option first_contact counts no more (pure); empty when it counts.

    ``kept``: the intent on this controller. An open one goes on by the same option; every other one has an end, so
    the first contact was made.
    """
    if word != ONCE or not kept or kept.get("machine") != name or intents.is_open(kept, name):
        return ""
    ends = {
        intents.DONE: "its system was proven",
        intents.SEEN: "a system was seen",
        intents.GIVEN_UP: "it was given up",
    }
    when = kept.get("ended_at") or kept.get("armed_at")
    made = ends.get(kept.get("state", ""), "a run has armed its rescue") + (f" at {when}" if when else "")
    return (
        f"kubenode_first_contact stands in the inventory, but it is for the first contact, and that was made: {made}. "
        "On the command line it counts for one run"
    )


def started_for(
    name: str, kept: Mapping[str, Any] | None, answer: Answer, shown: Collection[str], now: float | None = None
) -> bool:
    """Whether a rescue was started for an open intent (pure).

    ``kept``: the intent on this controller; ``answer``: what the rescue said; ``shown``: the host keys that it shows.
    """
    if answer.intent and intents.is_open(answer.intent, name):
        return not kept or answer.intent["installation"] == kept["installation"]
    if not kept or not intents.is_open(kept, name) or kept.get("disarmed"):
        return False
    if kept.get("attached"):
        # Nothing was armed for it: it is for this very boot of a rescue that another person had started.
        return bool(kept["attached"] == answer.boot_id)
    armed = kept.get("armed") or {}
    if armed.get("host_keys"):
        return bool(set(armed["host_keys"]).intersection(shown))
    if armed.get("boot"):
        return bool(armed["boot"] == answer.boot_id)
    # The run was cut off before the rescue came: it is ours when it booted while it was armed.
    if answer.origin.uptime is None:
        return False
    booted = (time.time() if now is None else now) - answer.origin.uptime
    return -60 <= booted - text.from_rfc3339(kept["armed_at"]) <= _ARMED
