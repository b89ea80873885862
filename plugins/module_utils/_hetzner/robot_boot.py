# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The way of one dedicated server into its rescue: arm, reset, wait, and go on to the next way when it did not come."""

from __future__ import annotations

import time

from .._common import boot_states
from . import rescue_probe, robot_decision, robot_reset, ssh
from .errors import ApiError, FleetError, HandedBack, LeftAlone, MachineError, NoAnswer, NotArrived, Permanent, Refused
from .retry import Deadline

#: Seconds to find out who answers when the machine will be rebooted in any case.
SHORT_LOOK = 8.0
#: The longest a system that was told to reboot by SSH may go on answering under its old boot id.
REBOOT_TAKES = 120.0
#: How long another system must answer before it is clear that the machine booted it instead of the rescue.
STEADY = 20.0
#: Seconds after which a look at a machine is too old to reset it because of that look.
LOOK_AGES = 60.0
#: A rescue that was armed lapses after an hour; it is armed anew before that.
ARMED_FOR = 3000.0
#: Parts of a step's limit: after the first, silence is a reason to ask whether the machine is off at all; after the
#: second, a reset whose answer was lost is looked into.
EARLY, UNSURE_FOR = 1 / 4, 1 / 5


class Tools:
    """What the journeys of all machines share. ``limits``: seconds for each way of the ladder."""

    def __init__(self, api, shell, limits, timeout, look_timeout, strict, prove, give_back_after):
        self.api = api
        self.shell = shell
        self.limits = limits
        self.timeout = timeout
        self.look_timeout = look_timeout
        self.strict = strict
        self.prove = prove
        self.give_back_after = give_back_after
        self.fingerprints = []


class Journey:
    """One machine on its way; ``run`` is its result in the making, ``given`` what the step before returned.

    ``may_go(run, answer)``: whether the user's word covers the system that answers.
    """

    def __init__(self, tools, run, server, sight, given, may_go):
        self.tools = tools
        self.run = run
        self.may_go = may_go
        #: The resets that Robot offers, once somebody has asked.
        self.types = []
        self.sight = sight
        self.given = given
        self.boot = robot_reset.Boot(tools.api, run.name, server["server_number"])
        self.arrival = rescue_probe.Arrival(tools.shell, self.boot, run.name, self.address, tools.strict)
        self._tried = [reset["way"] for reset in run.result["resets"]]
        self._status = None
        self._armed_at = None
        self._first_reset: float | None = None

    @property
    def address(self):
        """Where SSH reaches the machine."""
        return self.run.result.get("ipv4") or self.run.result.get("ipv6_address")

    def look(self):
        """Find out by SSH who answers; one lost connection is no silence."""
        if not self.address:
            raise MachineError("the server has no public address, so that SSH cannot reach it")
        seconds = self.tools.look_timeout
        if self.sight.reinstall or self.sight.rearm:
            seconds = min(seconds, SHORT_LOOK)
        deadline = Deadline(seconds, "an answer by SSH")
        while True:
            answer = self.arrival.look()
            enough = answer.kind == ssh.SYSTEM or (self.sight.unproven and answer.listens)
            if enough or deadline.left() <= rescue_probe.LOOK_EVERY:
                break
            deadline.sleep(rescue_probe.LOOK_EVERY, "")
        self.sight.answer, self.sight.listens = _who(answer), answer.listens
        self.note()

    def note(self):
        """Write down who answered."""
        answer, result = self.arrival.answer, self.run.result
        if answer is not None and answer.kind == ssh.SYSTEM:
            result.update(in_rescue=answer.in_rescue, hostname=answer.hostname, boot_id=answer.boot_id)
            result["installed_record"] = answer.installed

    def is_off(self):
        """Whether the machine is switched off; what Robot cannot tell counts as powered."""
        self._status = self.boot.power_status(self.step_deadline("the power status"))
        return self._status == robot_reset.SHUT_OFF

    def step_deadline(self, what):
        """Every step at the API has the whole time limit for itself."""
        return Deadline(self.tools.timeout, what)

    def attach(self):
        """Prove the rescue that answers."""
        known = [
            key for key in self.given.get("host_keys") or [] if isinstance(key, str) and ssh.key_blob(key) is not None
        ]
        self.arrival.wait_for_proof(
            known, Deadline(rescue_probe.TELLING_TAKES + rescue_probe.ASK_EVERY, "the proof of the rescue")
        )
        self.run.result["host_keys"] = list(self.arrival.proven)

    def first_way(self):
        """The way the journey begins with; None when the server can be reset by none."""
        return self._next_way(
            by_ssh=self.sight.answer in (robot_decision.INSTALLED, robot_decision.OTHER) and self.sight.reinstall
        )

    def begin(self):
        """Arm, and go up the ladder from its first way."""
        self._remember()
        way = self.first_way()
        if way is None:
            raise Permanent(
                "Robot offers no reset for it that can be used (offered: %s)" % ", ".join(self.types or ["none"])
            )
        self.run.timeline.to(boot_states.ENABLING_RESCUE)
        if way != robot_reset.SSH and self._wait_for_turn():
            # What was silent an hour ago may be a running system by now.
            self.look()
            if self.sight.answer == robot_decision.RESCUE and not self.sight.reinstall:
                raise Refused(
                    "it was booted into a rescue while this run waited for its turn: a person may be repairing it. It "
                    "was left as it is"
                )
            if self.sight.answer == robot_decision.RESCUE:
                self.attach()
                return
            if robot_decision.towards_rescue(self.sight) == robot_decision.LEAVE:
                raise LeftAlone("left alone: %s" % self.arrival.words)
            self._remember()
        self._arm()
        self._climb(way)

    def go_on(self):
        """An earlier call reset it: wait for the rest of that step, then go on up the ladder."""
        result = self.run.result
        result["previous_boot_id"] = self.given.get("previous_boot_id")
        self.run.timeline.to(boot_states.BOOTING_TO_RESCUE)
        if not result["resets"]:
            self._climb(None)
            return
        self._armed_at = time.monotonic() - _age(result["resets"][0])
        self._first_reset = time.monotonic()
        last = result["resets"][-1]
        rest = max(0.0, self.tools.limits[last["way"]] - _age(last))
        if self.tools.prove and self._wait(last["way"], rest, unsure=False):
            return
        self._climb(None)

    def give_up(self):
        """Take back what is armed, so that the next boot leads to the disk; returns what to tell."""
        if not (self.run.result["armed"] or self.sight.rearm):
            return ""
        try:
            if self._still_armed():
                self.boot.disarm_kind("rescue", self.step_deadline("the disarmed rescue"))
        except (MachineError, ApiError, NoAnswer) as error:
            return ". The rescue may still be armed for the next boot (%s): disarm it in Robot" % error
        self.run.result["armed"] = False
        return ". The rescue is disarmed: the next boot leads to the disk"

    def leave_rescue(self):
        """Reboot a machine out of its rescue by SSH, and wait until another system answers."""
        self._remember()
        self.run.timeline.to(boot_states.BOOTING_TO_REAL_OS)
        if not self.tools.shell.reboot(self.run.name, self.address):
            raise MachineError("the rescue did not take the order to reboot; try again, or reset the machine")
        if not self.tools.prove:
            return
        limit = self.tools.limits[robot_reset.SSH]
        deadline = Deadline(limit, "the system on the disk")
        while True:
            answer = self.arrival.look()
            if answer.kind == ssh.DENIED:
                break
            if answer.boot_id not in (None, self.run.result["previous_boot_id"]):
                if answer.in_rescue:
                    raise MachineError("the machine came back into a rescue: %s" % answer.describe())
                break
            deadline.sleep(rescue_probe.LOOK_EVERY, answer.describe())
        self.note()
        self.run.result["in_rescue"] = False
        self.run.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)

    def _remember(self):
        """Whoever answered before the reset must not be taken for who comes after it."""
        answer, result = self.arrival.answer, self.run.result
        result["previous_boot_id"] = (answer.boot_id if answer is not None else None) or self.given.get("boot_id")

    def _arm(self):
        self.run.result["changed"] = True
        self.boot.arm(self.tools.fingerprints, self.step_deadline("the armed rescue"))
        self._armed_at = time.monotonic()
        self.run.result["armed"] = True

    def _keep_armed(self):
        if self._armed_at is None or time.monotonic() - self._armed_at > ARMED_FOR:
            self._arm()

    def _wait_for_turn(self):
        """Reserve a reset before anything is armed; returns whether that took so long that a look is too old."""
        began = time.monotonic()
        self.boot.reserve(self.step_deadline("a reset within the hourly limit"))
        return time.monotonic() - began > LOOK_AGES

    def _climb(self, way):
        """Reset by ``way``, or by the next one, until the rescue is there; raises NotArrived after the last."""
        while True:
            if way is None:
                way = self._escalate()
                if way is None:
                    return
            outcome, status = self._send(way)
            if (
                outcome == robot_reset.FAILED
                and way in (robot_reset.SW, robot_reset.HW)
                and self._tried.count(way) == 1
            ):
                # A harder way is no answer to a passing trouble of Robot's.
                self._wait_for_turn()
                continue
            if outcome in (robot_reset.SENT, robot_reset.UNSURE):
                self.run.timeline.to(boot_states.BOOTING_TO_RESCUE)
                self.run.result.update(in_rescue=None, boot_id=None)
                off = way in (robot_reset.SW, robot_reset.HW) and status == robot_reset.SHUT_OFF
                if not off and (
                    not self.tools.prove or self._wait(way, self.tools.limits[way], outcome == robot_reset.UNSURE)
                ):
                    return
            way = None

    def _send(self, way):
        self.arrival.anew()
        self._first_reset = self._first_reset or time.monotonic()
        self.run.result["changed"] = True
        if way == robot_reset.SSH:
            outcome = (
                robot_reset.SENT if self.tools.shell.reboot(self.run.name, self.address) else robot_reset.FAILED,
                None,
            )
        else:
            outcome = self.boot.reset(way, self.step_deadline("the reset by %s" % way), self._keep_armed)
        self._tried.append(way)
        if outcome[0] in (robot_reset.SENT, robot_reset.UNSURE):
            reset = {"way": way, "at": boot_states.to_rfc3339(time.time())}
            self.run.result["resets"] = self.run.result["resets"] + [reset]
        return outcome

    def _escalate(self):
        """The next way, with the rescue armed; None when the rescue came meanwhile. Raises NotArrived for no way."""
        deadline = self.step_deadline("what Robot says of the server")
        active = self.boot.rescue(deadline).get("active") is True
        self._status = self.boot.power_status(deadline)
        way = self._next_way()
        if way is None and robot_reset.WOL not in self._tried and self.boot.can_be_woken(deadline):
            way = self._next_way(wol=True)
        if way is None:
            self.run.result["armed"] = active
            raise NotArrived(self._story(active))
        if way != robot_reset.WOL and self._wait_for_turn():
            if self._wait(way, rescue_probe.LOOK_EVERY, unsure=False):
                return None
            active = self._still_armed()
        if active:
            self._keep_armed()
        else:
            # Its one shot was spent on a boot that did not bring the rescue, or its hour is over.
            self._arm()
        return way

    def _wait(self, way, seconds, unsure):
        """Whether the rescue came within ``seconds``; ends early when it is clear that this way does not lead there."""
        result, deadline = self.run.result, Deadline(seconds, "the rescue")
        status_asked, other_since = way == robot_reset.WOL, None
        while True:
            found = self.arrival.see(result["previous_boot_id"], self.step_deadline("the rescue's host keys"))
            self.note()
            waited = seconds - deadline.left()
            if found == rescue_probe.ARRIVED:
                result.update(host_keys=list(self.arrival.proven), armed=False)
                return True
            answer = self.arrival.answer
            if found != rescue_probe.OTHER_SYSTEM or answer is None:
                other_since = None
            else:
                self._spare_unnamed(answer)
                other_since = time.monotonic() if other_since is None else other_since
                booted = answer.boot_id and result["previous_boot_id"]
                if booted or time.monotonic() - other_since >= STEADY:
                    return False
            if found == rescue_probe.SAME_BOOT and way == robot_reset.SSH and waited > min(REBOOT_TAKES, seconds / 2):
                return False
            if unsure and waited > seconds * UNSURE_FOR:
                unsure = False
                if self._still_armed():
                    # It was not carried out: nothing has booted since.
                    return self._again(way, seconds)
            if found == rescue_probe.NOBODY and not status_asked and waited > seconds * EARLY:
                status_asked = True
                self._status = self.boot.power_status(self.step_deadline("the power status"))
                if self._status == robot_reset.SHUT_OFF:
                    return False
            self._give_back()
            if deadline.left() > rescue_probe.LOOK_EVERY:
                deadline.sleep(rescue_probe.LOOK_EVERY, self.arrival.words)
            elif self.arrival.undecided:
                # No reset for a machine whose rescue may be there.
                time.sleep(rescue_probe.LOOK_EVERY)
            else:
                return False

    def _again(self, way, seconds):
        if way != robot_reset.WOL:
            self._wait_for_turn()
        return self._send(way)[0] in (robot_reset.SENT, robot_reset.UNSURE) and self._wait(way, seconds, unsure=False)

    def _still_armed(self):
        return self.boot.rescue(self.step_deadline("what Robot says of the rescue")).get("active") is True

    def _spare_unnamed(self, answer):
        """A system came up that was silent before, or another one: nothing more is done to it without consent."""
        if answer.kind != ssh.SYSTEM or self.may_go(self.run, answer):
            return
        self.boot.disarm(self.step_deadline("the disarmed rescue"))
        self.run.result["armed"] = False
        raise LeftAlone("left alone, and disarmed: %s" % self.arrival.words)

    def _give_back(self):
        after, since = self.tools.give_back_after, self._first_reset
        if after and since is not None and time.monotonic() - since >= after:
            raise HandedBack("its rescue has not come yet (%s). %s" % (self.arrival.words, self._resets_in_words()))

    def _next_way(self, by_ssh=False, wol=False):
        return robot_reset.next_way(self.types, self._tried, self._status, by_ssh=by_ssh, wol=wol)

    def _resets_in_words(self):
        resets = self.run.result["resets"]
        return "Resets: %s" % (", ".join("%s at %s" % (reset["way"], reset["at"]) for reset in resets) or "none")

    def _story(self, active):
        if active:
            state = "the rescue was still armed, so the machine has not booted from the network"
        else:
            state = "the rescue was booted, or its hour is over"
        return (
            "the rescue did not come. %s. Robot says: %s, power status '%s'; offered resets: %s. SSH said last: %s. "
            "Look at the machine by a KVM console, and set its firmware to boot from the network before its disks"
            % (
                self._resets_in_words(),
                state,
                self._status or "unknown",
                ", ".join(self.types) or "none",
                self.arrival.words,
            )
        )


def _age(reset):
    """Seconds since a reset that an earlier call sent."""
    return max(0.0, time.time() - boot_states.from_rfc3339(reset["at"]))


def _who(answer):
    if answer.kind == ssh.SILENT:
        return robot_decision.SILENT
    if answer.kind == ssh.DENIED:
        return robot_decision.DENIED
    if answer.in_rescue:
        return robot_decision.RESCUE
    return robot_decision.INSTALLED if answer.installed else robot_decision.OTHER


def time_limits(params):
    """Seconds for each way of the ladder, from the options of robot_rescue; raises FleetError for no length at all."""
    for option, least in (
        ("ssh_timeout", 1),
        ("sw_timeout", 1),
        ("hw_timeout", 1),
        ("power_timeout", 1),
        ("timeout", 1),
        ("look_timeout", 0),
        ("give_back_after", 0),
        ("max_resets", 0),
    ):
        if params[option] < least:
            raise FleetError("%s: %d is too little; use at least %d" % (option, params[option], least))
    return {
        robot_reset.SSH: params["ssh_timeout"],
        robot_reset.SW: params["sw_timeout"],
        robot_reset.HW: params["hw_timeout"],
        robot_reset.POWER: params["power_timeout"],
        robot_reset.WOL: params["power_timeout"],
    }
