# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Bring dedicated servers into their rescue, or back out of it (what the module robot_rescue does)."""

from __future__ import annotations

import time
from typing import Any

from .._common import boot_states, installed, intents
from .._common import consent as consents
from . import login_keys, robot_decision, robot_reset, robot_servers
from .catalog import Unfit
from .cloud_rescue import compare
from .errors import ApiError, FleetError, HandedBack, LeftAlone, MachineError, NoAnswer, Permanent, Refused
from .fleet import MachineRun, explain, name_findings, refuse_findings, run_all
from .intent_store import Book
from .retry import Deadline
from .robot_boot import Journey
from .robot_client import items
from .robot_limits import RESET, WINDOW, ResetPlan

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
_ARMING = (robot_decision.ARM_AND_REBOOT, robot_decision.ARM_AND_RESET, robot_decision.GO_ON)


class RobotRun(MachineRun):
    """The result of one dedicated server in the making, and its journey."""

    def __init__(self, name, state=boot_states.UNSET, since=None):
        super().__init__(name, state=state, since=since)
        self.result.update(_UNKNOWN)
        self.journey = None
        self.step = None

    def fail(self, error, provisioning=True):
        super().fail(error, provisioning)
        self.result["permanent"] = getattr(error, "permanent", False)


class RobotRescueFleet:
    """One call of robot_rescue."""

    def __init__(
        self,
        tools,
        machines,
        state,
        word,
        rearm,
        key,
        key_name,
        pace,
        check_mode,
        wanted=(),
        fail_for_drift=False,
        intents_dir=None,
        look_only=False,
    ):
        self._tools = tools
        self._api = tools.api
        self._given = machines
        self._machines = {machine.get("name"): machine for machine in machines}
        self._state = state
        #: The word that lets a present system go, and the machines that the user gave with it.
        self._words = consents.Words(*word)
        self._rearm = rearm
        self._key = key
        self._key_name = key_name
        self._pace = pace
        self._check = check_mode
        self._wanted = {one.get("name"): one for one in wanted}
        self._fail_for_drift = fail_for_drift
        self._intents = Book(intents_dir, self._wanted)
        self._look_only = look_only
        self._servers = {}

    def run(self):
        """Returns the results of all machines, in the order given; raises FleetError."""
        public_key = self._check_input()
        runs = [self._run_of(machine) for machine in self._given]
        active = [run for run in runs if not run.result["failed"]]
        if active:
            active = self._find(active)
            run_all(self._api, active, self._look, last=False)
            active = [run for run in active if not run.result["failed"]]
            self._prepare([run for run in active if run.step in _ARMING], public_key)
            run_all(self._api, active, self._bring_about)
        return [run.finish(self._api.calls_of.get(run.name, 0)) for run in runs]

    def _check_input(self):
        # Names of machines that are not of this call do no harm: of a larger fleet, or left out by --limit.
        findings = self._words.findings + name_findings(self._given)
        findings += robot_servers.input_findings(self._given)
        public_key = None
        try:
            public_key = login_keys.choose_key(*self._key) if self._state == "rescue" else None
        except Unfit as finding:
            findings.append(str(finding))
        refuse_findings(findings)
        return public_key

    def _run_of(self, machine):
        """The run of one machine, going on where the step before it ended."""
        since = machine.get("boot_state_since")
        try:
            run = RobotRun(
                machine["name"],
                state=machine.get("boot_state") or boot_states.UNSET,
                since=boot_states.from_rfc3339(since) if since else None,
            )
            resets = [{"way": reset["way"], "at": reset["at"]} for reset in machine.get("resets") or []]
            ages = [time.time() - boot_states.from_rfc3339(reset["at"]) for reset in resets]
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise FleetError(
                "machine '%s': boot_state, boot_state_since or resets is none a module of this collection returned "
                "(%s); leave them out" % (machine["name"], error)
            ) from error
        if machine.get("first_contact"):
            run.result["first_contact"] = machine["first_contact"]
        if any(reset["way"] not in self._tools.limits for reset in resets):
            raise FleetError("machine '%s': resets names a way that does not exist; leave it out" % machine["name"])
        for reset, age in zip(resets, ages):
            if (
                reset["way"] not in (robot_reset.SSH, robot_reset.WOL)
                and 0 <= age < WINDOW
                and not self._api.limits.kept
            ):
                self._api.limits.sent(RESET, age)
        if self._again(machine):
            run.result["resets"] = resets
        elif machine.get("failed"):
            run.result.update({key: machine[key] for key in _UNKNOWN if key in machine})
            run.result.update(failed=True, msg=machine.get("msg") or "it failed in an earlier step")
        return run

    def _again(self, machine):
        """Whether an earlier call armed the machine, it did not arrive, and it may be tried again."""
        return (
            self._rearm
            and machine.get("boot_state") == boot_states.BOOTING_TO_RESCUE
            and not machine.get("in_rescue")
            and not machine.get("permanent")
        )

    def _find(self, runs):
        """Read the servers of the account, once; returns the runs that have one."""
        # The first request is made alone, so that wrong credentials cost one failed login and no more.
        servers = robot_servers.read_servers(self._api, Deadline(self._tools.timeout, "the list of servers"))
        found = []
        owner: dict[int, str] = {}
        for run in runs:
            try:
                server = robot_servers.find(self._machines[run.name], servers)
                if server.get("status") not in (None, "ready"):
                    raise Refused("the server's status is '%s'; run again when it is ready" % server["status"])
            except Refused as error:
                run.fail(error)
                continue
            other = owner.setdefault(server["server_number"], run.name)
            if other != run.name:
                raise FleetError(
                    "nothing was changed, because of: the machines '%s' and '%s' are the same server %d; correct their "
                    "server_number" % (other, run.name, server["server_number"])
                )
            run.result.update(robot_servers.facts(server))
            self._servers[run.name] = server
            found.append(run)
        return found

    def _look(self, run):
        """Find out who answers, and decide; nothing is changed."""
        given = self._machines[run.name]
        proven = self._tools.shell.proved_system(run.name)
        kept = self._intents.of(run.name)
        run.result["used"] = self._words.used_by(run.name, kept)
        named = self._words.names(run.name) and not run.result["used"]
        met = contact_used(run.name, given.get("first_contact"), kept)
        may_reset = given.get("first_contact") in (robot_servers.RESET, robot_servers.ONCE) and not met
        sight = robot_decision.Sight(reinstall=named, rearm=self._again(given), proven=proven, may_reset=may_reset)
        # For a look nothing is finished: it may go on to the power button, or to no end, as the user says.
        sight.unproven = "" if self._look_only or sight.rearm else self._intents.unproven(run.name)
        run.journey = Journey(self._tools, run, self._servers[run.name], sight, given, self._may_go)
        if self._state == "disarmed":
            self._ask_armed(run)
            run.step = robot_decision.DISARM if run.result["armed"] else robot_decision.LEAVE
            return
        towards = robot_decision.towards_rescue if self._state == "rescue" else robot_decision.towards_os
        if towards(sight) == robot_decision.PROBE:
            run.journey.look()
            answer = run.journey.arrival.answer
            if sight.answer in (robot_decision.INSTALLED, robot_decision.OTHER) and sight.reinstall:
                sight.reinstall = self._may_go(run, answer)
        if towards(sight) == robot_decision.ASK_RESCUE and (self._look_only or not self._intents.kept):
            # Whoever started it, nothing will be written there without a look at its disks.
            sight.intended = True
        if towards(sight) == robot_decision.ASK_RESCUE:
            shown = self._tools.shell.keys_of_last_probe(run.name)
            sight.intended = started_for(run.name, kept, run.journey.arrival.answer, shown)
            if kept and sight.intended:
                run.result["installation"] = kept["installation"]
        if towards(sight) == robot_decision.ASK_POWER:
            # For a look nobody is switched on, either.
            sight.off = not self._look_only and run.journey.is_off()
        if self._state == "os":
            sight.armed = self._ask_armed(run)
        run.step = towards(sight)
        if run.step == robot_decision.REFUSE_RESCUE:
            raise Refused(
                "it is in a rescue that was not started for an open installation of ours: somebody may be repairing "
                "it. It was left as it is. To keep its system, reboot it to its disk; to write it, name it: %s%s"
                % (
                    consents.extra_var("reinstall", [run.name]),
                    run.result["used"] and ". Besides, " + run.result["used"],
                )
            )
        if run.step == robot_decision.REFUSE_SILENT:
            raise Refused(
                "an earlier run %s its new system, and now it does not let us in (%s): it may be a node whose "
                "network or SSH is down. Look at it; to have it reset and written again, name it: %s"
                % (
                    "proved" if proven else "finished",
                    run.journey.arrival.words,
                    consents.extra_var("reinstall", [run.name]),
                )
            )

        if run.step == robot_decision.REFUSE_LIVE:
            raise Refused(
                "we cannot tell what it runs (%s), so it was not reset and nothing is armed. If it serves nobody, "
                "permit its reset into the rescue, which changes no disk: -e kubenode_first_contact=reset%s"
                % (run.journey.arrival.words, met and ". " + met)
            )

    def _may_go(self, run, answer):
        """Whether the word that names a machine covers what runs on it; says why not."""
        if not self._words.names(run.name):
            return False
        record = intents.record_or_kept(answer.installed, self._intents.of(run.name), run.name, answer.origin.uuids)
        if self._words.covers(run.name, record):
            return True
        run.result["used"] = self._words.why_not(run.name, record)
        return False

    def _ask_armed(self, run):
        answer = run.journey.boot.rescue(run.journey.step_deadline("the state of the rescue"))
        run.result["armed"] = answer.get("active") is True
        return run.result["armed"]

    def _prepare(self, runs, public_key):
        """Read what arming needs, judge the hourly limit, and register the key; nothing is changed before that."""
        if not runs:
            return
        deadline = Deadline(self._tools.timeout, "the lists of resets and keys")
        types = {
            item["server_number"]: [kind for kind in items(item.get("type")) if isinstance(kind, str)]
            for item in self._api.read_list("/reset", "reset", deadline)
            if isinstance(item.get("server_number"), int)
        }
        for run in runs:
            run.journey.types = types.get(run.result["server_number"], [])
            run.result["reset_types"] = run.journey.types
        self._judge_limit(runs)
        if not self._check:
            if not login_keys.is_registered(public_key, self._api.read_list("/key", "key", deadline)):
                login_keys.register(self._api, public_key, self._key_name, deadline)
            self._tools.fingerprints = [login_keys.md5_fingerprint(public_key)]

    def _judge_limit(self, runs):
        ways = [run.journey.first_way() for run in runs if run.step != robot_decision.GO_ON]
        limits = self._api.limits
        plan = ResetPlan(
            len([way for way in ways if way not in (None, robot_reset.SSH)]), limits.left(RESET), limits.hourly(RESET)
        )
        if not plan.fits and not self._pace:
            raise FleetError(
                "nothing was changed, because of: %s. Name fewer machines (for example with --limit), run again for "
                "the others later, or set on_reset_limit to pace" % plan.message
            )

    def _bring_about(self, run):
        journey = run.journey
        try:
            if self._check and run.step not in (robot_decision.ATTACH, robot_decision.LEAVE):
                self._predict(run)
            else:
                getattr(self, "_" + run.step)(journey, run)
        except HandedBack as error:
            run.result.update(in_rescue=False, armed=True, msg=str(error))
        except LeftAlone as error:
            self._leave(journey, run)
            run.result["msg"] = str(error)
        except (MachineError, ApiError, NoAnswer) as error:
            raise self._given_up(journey, run, error) from error

    def _given_up(self, journey, run, error):
        """The error, after what is armed was taken back: the next boot of the machine is somebody else's."""
        if run.step not in _ARMING or self._check or not (run.result["changed"] or journey.sight.rearm):
            return error
        told = journey.give_up()
        permanent = getattr(error, "permanent", False)
        self._intents.gave_up(run.name, permanent)
        kind = Permanent if permanent else Refused if isinstance(error, Refused) else MachineError
        return kind("%s%s" % (explain(error), told))

    def _predict(self, run):
        """Check mode: say what would be done."""
        if run.step in (robot_decision.DISARM, robot_decision.LEAVE_RESCUE):
            plan = "disarm the rescue" if run.step == robot_decision.DISARM else "leave the rescue by a reboot over SSH"
        elif run.step == robot_decision.GO_ON:
            plan = "wait for the rescue, and arm and reset again if it does not come"
        else:
            way = run.journey.first_way()
            plan = "arm the rescue and %s" % (
                "reboot by SSH"
                if way == robot_reset.SSH
                else "reset by %s" % way
                if way
                else "fail: no reset is offered"
            )
        run.result.update(changed=True, msg="would %s" % plan, diff=_diff(run))

    def _attach(self, journey, run):
        journey.attach()
        # A look begins no installation, also when a word names the machine.
        begins = not self._check and not self._look_only
        if begins and not (journey.sight.intended or journey.sight.rearm):
            # By the word of the user; what lies on its disks will say whether the word still covers it.
            run.result["installation"] = installed.new_installation()
            self._intents.open(
                run, self._words.variable, server=run.result["server_number"], attached=run.result["boot_id"]
            )
        elif begins:
            self._reached(run)
        run.timeline.found(boot_states.BOOTING_TO_RESCUE)
        run.result["msg"] = "is in the rescue"

    def _leave(self, journey, run):
        if self._state == "disarmed":
            run.result["msg"] = "not armed"
            return
        if self._state == "os" and journey.sight.answer in (robot_decision.SILENT, robot_decision.DENIED):
            run.result["msg"] = "not armed; which system runs is unknown: %s" % journey.arrival.words
            return
        run.timeline.found(boot_states.OPERATING_SYSTEM_RUNNING)
        run.result.update(installed=True, in_rescue=False, msg="left alone: %s" % journey.arrival.words)
        answer = journey.arrival.answer
        record = answer.installed if answer is not None else None
        unproven = journey.sight.answer in (robot_decision.SILENT, robot_decision.DENIED) and journey.sight.unproven
        if unproven:
            # Nothing but our own intent tells what runs.
            record = self._intents.of(run.name)
            run.result["msg"] += "; not verified, as kubenode_proof: %s says" % unproven
        run.result["installation"] = self._intents.unfinished(run.name)
        if run.result["used"]:
            run.result["msg"] += "; %s" % run.result["used"]
        wanted, kept = self._wanted.get(run.name), self._intents.of(run.name)
        compare(run, record, {}, wanted, self._fail_for_drift, self._tools.shell, kept)
        if self._state == "rescue" and not self._check and not unproven:
            self._intents.seen(run.name, run.result["proven"])

    def _arm_and_reboot(self, journey, run):
        self._travel(journey.begin, run)

    def _arm_and_reset(self, journey, run):
        self._travel(journey.begin, run)

    def _go_on(self, journey, run):
        self._travel(journey.go_on, run)

    def _travel(self, go, run):
        run.result["diff"] = _diff(run)
        run.result["installation"] = self._machines[run.name].get("installation") or installed.new_installation()
        consent = consents.joined(self._words.variable if self._words.names(run.name) else consents.EMPTY)
        self._intents.open(run, consent, server=run.result["server_number"])
        go()
        self._reached(run)
        run.result["msg"] = "is in the rescue" if self._tools.prove else "is booting into the rescue (not proved)"

    def _reached(self, run):
        """From now on this boot of the rescue is the one that the intent is for, and no later one."""
        if run.result["in_rescue"]:
            self._intents.armed(run.name, host_keys=run.result["host_keys"], boot=run.result["boot_id"])

    def _disarm(self, journey, run):
        run.result.update(changed=True, diff=_diff(run))
        journey.boot.disarm_kind("rescue", journey.step_deadline("the disarmed rescue"))
        run.result["armed"] = False
        if self._state == "disarmed":
            run.result["msg"] = "disarmed"
        elif journey.sight.answer in (robot_decision.SILENT, robot_decision.DENIED):
            run.result["msg"] = "disarmed; which system runs is unknown: %s" % journey.arrival.words
        else:
            self._leave(journey, run)
            run.result["msg"] = "disarmed, and %s" % run.result["msg"]

    def _leave_rescue(self, journey, run):
        if journey.sight.armed:
            self._disarm_armed(journey, run)
        run.result.update(changed=True, diff=_diff(run))
        journey.leave_rescue()
        run.result["msg"] = "left the rescue" if self._tools.prove else "is leaving the rescue (not proved)"

    def _disarm_armed(self, journey, run):
        journey.boot.disarm_kind("rescue", journey.step_deadline("the disarmed rescue"))
        run.result["armed"] = False


def contact_used(name, word, kept):
    """Why a word about the first contact counts no more (pure); empty when it counts.

    ``kept``: the intent on this controller. An open one goes on by the same word; every other one has an end, so the
    machine was met.
    """
    if word != robot_servers.ONCE or not kept or kept.get("machine") != name or intents.is_open(kept, name):
        return ""
    ends = {
        intents.DONE: "its system was proven",
        intents.SEEN: "a system was seen",
        intents.GIVEN_UP: "it was given up",
    }
    when = kept.get("ended_at") or kept.get("armed_at")
    return (
        "kubenode_first_contact stands in the inventory, but it is for the first contact, and that was made: %s%s. On "
        "the command line it counts for one run"
        % (ends.get(kept.get("state"), "a run has armed its rescue"), " at %s" % when if when else "")
    )


#: Seconds for which an armed rescue waits for its boot.
_ARMED = 3600.0


def started_for(name, kept, answer, shown, now=None):
    """Whether a rescue was started for an open intent (pure).

    ``kept``: the intent on this controller; ``answer``: what the rescue said; ``shown``: the host keys that it shows.
    """
    if intents.is_open(answer.intent, name):
        return not kept or answer.intent["installation"] == kept["installation"]
    if not intents.is_open(kept, name) or kept.get("disarmed"):
        return False
    if kept.get("attached"):
        # Nothing was armed for it: it is for this very boot of a rescue that somebody else had started.
        return kept["attached"] == answer.boot_id
    armed = kept.get("armed") or {}
    if armed.get("host_keys"):
        return bool(set(armed["host_keys"]).intersection(shown))
    if armed.get("boot"):
        return armed["boot"] == answer.boot_id
    # The run was cut off before the rescue came: it is ours when it booted while it was armed.
    if answer.origin.uptime is None:
        return False
    booted = (time.time() if now is None else now) - answer.origin.uptime
    return -60 <= booted - boot_states.from_rfc3339(kept["armed_at"]) <= _ARMED


def _diff(run):
    leaving = run.step in (robot_decision.DISARM, robot_decision.LEAVE_RESCUE)
    before = {"rescue": run.step == robot_decision.LEAVE_RESCUE, "armed": run.result["armed"]}
    after = {"rescue": not leaving, "armed": False}
    return {"before_header": run.name, "after_header": run.name, "before": before, "after": after}
