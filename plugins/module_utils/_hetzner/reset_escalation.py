# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Reset escalation: reset a dedicated server, from the gentlest type of reset to the last, until its rescue comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._common import boot_states, text
from .api_failures import LOOK_EVERY, Deadline, FleetError, HandedBack, LeftAlone, Permanent
from .api_types import Reset
from .fleet_run import MachineRun
from .rescue_probe import ARRIVED, NOT_THERE, OTHER_SYSTEM, SAME_BOOT, RescueProbe
from .robot_servers import FAILED, HW, POWER, RUNNING, SENT, SHUT_OFF, SSH, SW, UNSURE, WOL, BootRoutes
from .ssh import SYSTEM, Answer, Ssh

#: The longest a system that was asked to reboot by SSH may go on answering under its old boot id.
REBOOT_TAKES = 120.0
#: How long another system must answer before it is clear that the machine booted it instead of the rescue.
STEADY = 20.0
#: Seconds after which a look at a machine is too old to reset it because of that look.
LOOK_AGES = 60.0
#: A rescue that was armed lapses after an hour; it is armed again before that.
ARMED_FOR = 3000.0
#: Parts of a reset's limit: after the first, silence is a reason to ask whether the machine is off at all; after the
#: second, a reset whose answer was lost is looked into.
EARLY, UNSURE_FOR = 1 / 4, 1 / 5

_RANKS = {SSH: 0, SW: 1, HW: 2, POWER: 3, WOL: 4}


def next_reset_type(
    offered: Collection[str], tried: Sequence[str], status: str | None = None, by_ssh: bool = False, wol: bool = False
) -> str | None:
    """The next type of reset, or None when all were tried.

    ``offered``: Robot's reset types of the server; ``tried``: the types so far, in order; ``status``: what Robot says
    of its power, None when it was not asked; ``by_ssh``: a system that may be rebooted lets us in; ``wol``: it can be
    woken. A technician (man) is never sent, and the long press (power_long) never made.
    """
    if status == SHUT_OFF:
        # Neither keys nor the reset button start a server that is off; a press that shut it down needs a second one.
        if POWER in offered and tried.count(POWER) < 2:
            return POWER
        return WOL if wol and WOL not in tried else None
    reached = max((_RANKS[one] for one in tried if one in _RANKS), default=-1)
    if by_ssh and reached < 0:
        return SSH
    for one in (SW, HW):
        if one in offered and reached < _RANKS[one]:
            return one
    if POWER in offered and reached <= _RANKS[POWER] and tried.count(POWER) < (1 if status == RUNNING else 2):
        return POWER
    # A network boot may be missed once.
    if HW in offered and tried.count(HW) < 2:
        return HW
    return WOL if wol and WOL not in tried else None


def time_limits(params: Mapping[str, Any]) -> dict[str, float]:
    """Seconds for each type of reset, from the options of robot_rescue; raises FleetError for no length at all."""
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
            raise FleetError(f"{option}: {params[option]} is too little; use at least {least}")
    return {
        SSH: params["ssh_timeout"],
        SW: params["sw_timeout"],
        HW: params["hw_timeout"],
        POWER: params["power_timeout"],
        WOL: params["power_timeout"],
    }


@dataclass
class EscalationOptions:
    """How far and how long; ``limits``: seconds for each type of reset."""

    limits: Mapping[str, float]
    timeout: float
    prove: bool = True
    #: Seconds after the first reset from which a later step waits for the rescue; 0 for never.
    give_back_after: float = 0


class ResetEscalation:
    """The resets of one machine in one call. The result of ``run`` lists what was sent.

    ``previous_boot_id`` in that result is the boot that must not be taken for the rescue. ``may_go``: whether the
    user's option covers the system that answers; ``note``: writes into the result who answers.
    """

    def __init__(
        self,
        options: EscalationOptions,
        run: MachineRun,
        shell: Ssh,
        routes: BootRoutes,
        probe: RescueProbe,
        address: str | None,
        may_go: Callable[[Answer], bool],
        note: Callable[[Answer], None],
    ) -> None:
        self._options = options
        self._run = run
        self._shell = shell
        self._routes = routes
        self._probe = probe
        self._address = address
        self._may_go = may_go
        self._note = note
        #: The types of reset that Robot offers, and the fingerprints of the keys that open the rescue; read before.
        self.offered: Sequence[str] = ()
        self.fingerprints: Sequence[str] = ()
        self._tried = [reset["way"] for reset in run.result["resets"]]
        self._power: str | None = None
        self._armed_at: float | None = None
        self._first_reset: float | None = None

    def is_off(self) -> bool:
        """Whether the machine is switched off; what Robot does not know counts as powered."""
        self._power = self._routes.power_status(self._deadline("the power status"))
        return self._power == SHUT_OFF

    def next_type(self, by_ssh: bool = False, wol: bool = False) -> str | None:
        """The next type of reset; None when there is none."""
        return next_reset_type(self.offered, self._tried, self._power, by_ssh=by_ssh, wol=wol)

    def wait_for_turn(self) -> bool:
        """Reserve a reset before anything is armed; returns whether that took so long that a look is too old."""
        began = time.monotonic()
        self._routes.reserve(self._deadline("a reset within the hourly limit"))
        return time.monotonic() - began > LOOK_AGES

    def arm(self) -> None:
        """Arm the rescue for the next boot."""
        self._run.result["changed"] = True
        self._routes.arm(self.fingerprints, self._deadline("the armed rescue"))
        self._armed_at = time.monotonic()
        self._run.result["armed"] = True

    def still_armed(self) -> bool:
        """Whether Robot says that the rescue is armed."""
        return self._routes.rescue(self._deadline("what Robot says of the rescue")).get("active") is True

    def go_on(self) -> None:
        """An earlier call reset it: wait for the rest of that time, then go on with the next type of reset."""
        resets = self._run.result["resets"]
        if not resets:
            self.escalate(None)
            return
        self._armed_at = time.monotonic() - _age(resets[0])
        self._first_reset = time.monotonic()
        last = resets[-1]
        rest = max(0.0, self._options.limits[last["way"]] - _age(last))
        if self._options.prove and self._wait(last["way"], rest, unsure=False):
            return
        self.escalate(None)

    def escalate(self, kind: str | None) -> None:
        """Reset by this type, or by the next one, until the rescue is there; raises Permanent after the last."""
        while True:
            if kind is None:
                kind = self._next_armed()
                if kind is None:
                    return
            outcome, power = self._send(kind)
            if outcome == FAILED and kind in (SW, HW) and self._tried.count(kind) == 1:
                # A passing error of Robot does not justify a harder reset.
                self.wait_for_turn()
                continue
            if outcome in (SENT, UNSURE):
                self._run.timeline.to(boot_states.BOOTING_TO_RESCUE)
                self._run.result.update(in_rescue=None, boot_id=None)
                off = kind in (SW, HW) and power == SHUT_OFF
                if not off and (
                    not self._options.prove or self._wait(kind, self._options.limits[kind], outcome == UNSURE)
                ):
                    return
            kind = None

    def _deadline(self, what: str) -> Deadline:
        return Deadline(self._options.timeout, what)

    def _keep_armed(self) -> None:
        if self._armed_at is None or time.monotonic() - self._armed_at > ARMED_FOR:
            self.arm()

    def _send(self, kind: str) -> tuple[str, str | None]:
        """Send one reset; returns its outcome and the power status that Robot returns with it."""
        self._probe.restart()
        self._first_reset = self._first_reset or time.monotonic()
        self._run.result["changed"] = True
        if kind == SSH:
            taken = bool(self._address) and self._shell.reboot(self._run.name, self._address or "")
            outcome: tuple[str, str | None] = (SENT if taken else FAILED, None)
        else:
            outcome = self._routes.reset(kind, self._deadline(f"the reset by {kind}"), self._keep_armed)
        self._tried.append(kind)
        if outcome[0] in (SENT, UNSURE):
            reset: Reset = {"way": kind, "at": text.to_rfc3339(time.time())}
            self._run.result["resets"] = self._run.result["resets"] + [reset]
        return outcome

    def _next_armed(self) -> str | None:
        """The next type, with the rescue armed; None when the rescue came meanwhile. Raises Permanent for none."""
        deadline = self._deadline("what Robot says of the server")
        active = self._routes.rescue(deadline).get("active") is True
        self._power = self._routes.power_status(deadline)
        kind = self.next_type()
        if kind is None and WOL not in self._tried and self._routes.can_be_woken(deadline):
            kind = self.next_type(wol=True)
        if kind is None:
            self._run.result["armed"] = active
            raise Permanent(self._what_was_tried(active))
        if kind != WOL and self.wait_for_turn():
            if self._wait(kind, LOOK_EVERY, unsure=False):
                return None
            active = self.still_armed()
        if active:
            self._keep_armed()
        else:
            # Its one shot was spent on a boot that did not bring the rescue, or its hour is over.
            self.arm()
        return kind

    def _wait(self, kind: str, seconds: float, unsure: bool) -> bool:
        """Whether the rescue came within ``seconds``; ends early when it is clear that this reset will not do."""
        result, deadline = self._run.result, Deadline(seconds, "the rescue")
        power_asked = kind == WOL
        other_since: float | None = None
        while True:
            found = self._probe.see(result["previous_boot_id"], self._deadline("the rescue's host keys"))
            answer = self._probe.answer
            if answer is not None:
                self._note(answer)
            waited = seconds - deadline.left()
            if found == ARRIVED:
                result.update(host_keys=list(self._probe.proven), armed=False)
                return True
            if found != OTHER_SYSTEM or answer is None:
                other_since = None
            else:
                self._spare_unnamed(answer)
                other_since = time.monotonic() if other_since is None else other_since
                booted = answer.boot_id and result["previous_boot_id"]
                if booted or time.monotonic() - other_since >= STEADY:
                    return False
            if found == SAME_BOOT and kind == SSH and waited > min(REBOOT_TAKES, seconds / 2):
                return False
            if unsure and waited > seconds * UNSURE_FOR:
                unsure = False
                if self.still_armed():
                    # It was not carried out: nothing has booted since.
                    return self._send_again(kind, seconds)
            if found == NOT_THERE and not power_asked and waited > seconds * EARLY:
                power_asked = True
                if self.is_off():
                    return False
            self._give_back()
            if deadline.left() > LOOK_EVERY:
                deadline.sleep(LOOK_EVERY, self._probe.words)
            elif self._probe.undecided:
                # No reset for a machine whose rescue may be there.
                time.sleep(LOOK_EVERY)
            else:
                return False

    def _send_again(self, kind: str, seconds: float) -> bool:
        if kind != WOL:
            self.wait_for_turn()
        return self._send(kind)[0] in (SENT, UNSURE) and self._wait(kind, seconds, unsure=False)

    def _spare_unnamed(self, answer: Answer) -> None:
        """A system came up that was silent before, or another one: nothing more is done to it without consent."""
        if answer.kind != SYSTEM or self._may_go(answer):
            return
        self._routes.disarm(self._deadline("the disarmed rescue"))
        self._run.result["armed"] = False
        raise LeftAlone(f"left alone, and disarmed: {self._probe.words}")

    def _give_back(self) -> None:
        after, since = self._options.give_back_after, self._first_reset
        if after and since is not None and time.monotonic() - since >= after:
            raise HandedBack(f"its rescue has not come yet ({self._probe.words}). {self._resets_in_words()}")

    def _resets_in_words(self) -> str:
        resets = ", ".join(f"{reset['way']} at {reset['at']}" for reset in self._run.result["resets"])
        return f"Resets: {resets or 'none'}"

    def _what_was_tried(self, active: bool) -> str:
        if active:
            state = "the rescue was still armed, so the machine has not booted from the network"
        else:
            state = "the rescue was booted, or its hour is over"
        return (
            f"the rescue did not come. {self._resets_in_words()}. Robot says: {state}, power status "
            f"'{self._power or 'unknown'}'; offered resets: {', '.join(self.offered) or 'none'}. SSH said last: "
            f"{self._probe.words}. Look at the machine by a KVM console, and set its firmware to boot from the network "
            "before its disks"
        )


def _age(reset: Reset) -> float:
    """Seconds since a reset that an earlier call sent."""
    return max(0.0, time.time() - text.from_rfc3339(reset["at"]))
