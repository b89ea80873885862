# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Reset escalation: reset a dedicated server, from the gentlest type of reset to the last, until its rescue comes.

After each reset, the probe finds who answers, and whether it is the rescue. Nothing is sent to a rescue whose host key
is not proven.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._common import boot_states, consent, text
from .._common.ssh_access import sha256_fingerprint
from . import ssh
from .api_failures import LOOK_EVERY, Deadline, FleetError, HandedBack, LeftAlone, MachineError, Permanent
from .api_types import Reset
from .fleet_run import MachineRun
from .robot_servers import FAILED, HW, POWER, RUNNING, SENT, SHUT_OFF, SSH, SW, UNSURE, WOL, BootRoutes
from .ssh import SYSTEM, Answer, Ssh

#: Seconds between two questions to Robot about the same thing, and for Robot to publish host keys.
ASK_EVERY = 10.0
PUBLISHING_TAKES = 60.0
#: Seconds for which the same false keys must be shown, by scans of their own, as a system that is going down may yet
#: answer; keys that change all the time are false after as many seconds as Robot may take to publish them.
FALSE_TAKES = 20.0
#: Seconds for which a rescue whose host key is proven may refuse our key.
DENIAL_TAKES = 30.0

#: What a look found: the rescue, nothing, the boot that was seen before the reset, or a boot of another system.
ARRIVED, NOT_THERE, SAME_BOOT, OTHER_SYSTEM = "arrived", "not there", "same boot", "other system"

#: How `BootRoutes` calls the rescue that a run of ours arms.
_OURS = ("rescue", "rescue (linux)")
_PREFIX = "SHA256:"


def announced(rescue: Mapping[str, Any]) -> list[str]:
    """The fingerprints in an answer of ``…/rescue/last``; an empty list when it has none."""
    found = []
    entries = rescue.get("host_key")
    for entry in entries if isinstance(entries, list) else []:
        key = entry.get("key") if isinstance(entry, dict) else None
        text = key.get("fingerprint") if isinstance(key, dict) else None
        if isinstance(text, str) and text and text.isascii():
            found.append((text[len(_PREFIX) :] if text.startswith(_PREFIX) else text).rstrip("="))
    return found


def proven(shown: Iterable[str], announced_keys: Sequence[str]) -> list[str]:
    """Those of the keys ``shown`` whose fingerprints were announced; every pair is compared, in constant time."""
    result = []
    for key in shown:
        matches = [hmac.compare_digest(sha256_fingerprint(key).encode(), one.encode()) for one in announced_keys]
        if any(matches):
            result.append(key)
    return sorted(result)


class RescueProbe:
    """The looks at one machine. ``strict``: the rescue's host keys must be those that Robot publishes."""

    def __init__(
        self,
        shell: Ssh,
        routes: BootRoutes,
        name: str,
        address: str,
        strict: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shell = shell
        self._routes = routes
        self._name = name
        self._address = address
        self._strict = strict
        self._clock = clock
        #: Host keys of systems that are not the rescue, and those of them that were scanned with all their types.
        self._others: set[str] = set()
        self._scanned: set[str] = set()
        #: The keys that were taken for false ones first.
        self._false: set[str] = set()
        self._same_since = 0.0
        self._asked_at: float | None = None
        self._silent_since: float | None = None
        self._denied_since: float | None = None
        self._false_since: float | None = None
        #: The last answer by SSH, and the host keys of the rescue that were proven.
        self.answer: ssh.Answer | None = None
        self.proven: list[str] = []
        self.words = "it was not asked"

    @property
    def _untold(self) -> bool:
        """Whether Robot has had time enough to tell the keys of the rescue that answers."""
        since = self._silent_since
        return since is not None and self._clock() - since >= PUBLISHING_TAKES - ASK_EVERY / 2

    @property
    def undecided(self) -> bool:
        """Whether something answers that may yet prove to be the rescue, or to be none, within a minute."""
        return any(since is not None for since in (self._silent_since, self._denied_since, self._false_since))

    def restart(self) -> None:
        """The machine was reset: what was found out about its rescue counts no more."""
        self._asked_at = self._silent_since = self._denied_since = None
        self._not_false()
        self.answer, self.proven = None, []

    def look(self) -> Answer:
        """Ask by SSH which system answers, whichever it is; nothing secret is sent."""
        self.answer = self._shell.probe(self._name, self._address)
        self.words = self.answer.describe()
        if self.answer.kind != ssh.SILENT and not self.answer.in_rescue:
            self._know(self._shell.keys_of_last_probe(self._name))
        return self.answer

    def _not_false(self) -> None:
        self._false_since, self._false = None, set()

    def _know(self, shown: Iterable[str]) -> None:
        """Remember another system, by its keys of all types: in its last seconds it may show any of them alone."""
        self._others.update(shown)
        if self._strict and not self._scanned.issuperset(shown):
            scanned = self._shell.host_keys(self._name, self._address)
            self._others.update(scanned)
            self._scanned.update(scanned)

    def wait_for_proof(self, known: Sequence[str], deadline: Deadline) -> bool:
        """Prove the host keys of a rescue that answered already; False when Robot does not tell them. Raises Permanent.

        ``known``: host keys that an earlier step or run proved.
        """
        if not self._strict:
            self.pin()
            return True
        shown = self._shell.keys_of_last_probe(self._name)
        if set(known).intersection(shown):
            self._shell.pin_keys(self._name, list(known))
            self.proven = list(known)
            return True
        shown = self._shell.host_keys(self._name, self._address) or shown
        while not self._prove(shown, deadline):
            if deadline.left() < LOOK_EVERY or self._untold:
                return False
            deadline.sleep(LOOK_EVERY, "")
        return True

    def wait_for_another_boot(self, previous_boot_id: str | None, deadline: Deadline) -> Answer:
        """Wait until a system that is no rescue answers after a reboot; returns its answer, raises MachineError."""
        while True:
            answer = self.look()
            if answer.kind == ssh.DENIED:
                return answer
            if answer.boot_id not in (None, previous_boot_id):
                if answer.in_rescue:
                    raise MachineError(f"the machine came back into a rescue: {answer.describe()}")
                return answer
            deadline.sleep(LOOK_EVERY, answer.describe())

    def pin(self) -> None:
        """Keep the host key of the rescue that answered last, on first contact."""
        self._shell.pin_keys(self._name, self._shell.keys_of_last_probe(self._name))

    def see(self, previous_boot_id: str | None, deadline: Deadline) -> str:
        """One look at a machine that boots; returns ARRIVED, NOT_THERE, SAME_BOOT or OTHER_SYSTEM."""
        if not self._strict:
            return self._judge(self.look(), previous_boot_id)
        shown = self._shell.host_keys(self._name, self._address)
        if not shown:
            self.words, self._silent_since = "SSH does not answer", None
            self._not_false()
            # The port of the rescue is silent; a system with a port of its own may have come up instead.
            answer = self._shell.probe_elsewhere(self._name, self._address)
            if answer is None or answer.kind != ssh.SYSTEM or answer.in_rescue:
                return NOT_THERE
            return self._judge(answer, previous_boot_id)
        if self._others.intersection(shown):
            answer = self.look()
            if not answer.in_rescue:
                # The old system, still or again: what showed false keys may be gone.
                self._not_false()
                return self._judge(answer, previous_boot_id)
            # It says so itself, which proves nothing; only Robot's answer does.
            self._others.difference_update(shown)
        if not set(self.proven).intersection(shown) and not self._prove(shown, deadline):
            if self._untold:
                raise MachineError(
                    f"the rescue answers, but for {PUBLISHING_TAKES:.0f} s Robot reported no host keys of it, so it "
                    f"cannot be proven. {ways_out(self._name)}"
                )
            if not self._others.intersection(shown):
                return NOT_THERE
            # Another system is asked at once who it is: one that accepts our key is not reset. What it says of a
            # rescue proves nothing.
            answer = self.look()
            return NOT_THERE if answer.in_rescue else self._judge(answer, previous_boot_id)
        return self._judge(self._shell.probe_pinned(self._name, self._address), previous_boot_id)

    def _judge(self, answer: Answer, previous_boot_id: str | None) -> str:
        self.answer, self.words = answer, answer.describe()
        if answer.kind != ssh.DENIED or not self.proven:
            self._denied_since = None
        else:
            self._denied_since = self._denied_since or self._clock()
            if self._clock() - self._denied_since >= DENIAL_TAKES:
                raise Permanent(f"the rescue answers, with a proven host key, but refuses ours: {self.words}")
        if answer.kind != ssh.SYSTEM:
            return NOT_THERE
        if answer.boot_id is not None and answer.boot_id == previous_boot_id:
            return SAME_BOOT
        if not answer.in_rescue:
            return OTHER_SYSTEM
        if answer.boot_id is None:
            return NOT_THERE
        if not self._strict:
            self.pin()
        return ARRIVED

    def _prove(self, shown: Sequence[str], deadline: Deadline) -> bool:
        """Ask Robot whose keys these are, sparingly; returns whether they are proven."""
        now = self._clock()
        if self._asked_at is not None and now - self._asked_at < ASK_EVERY:
            return False
        self._asked_at = now
        last = self._routes.rescue(deadline, last=True)
        published = announced(last)
        self.proven = proven(shown, published)
        if self.proven:
            self._silent_since = None
            self._not_false()
            self._shell.pin_keys(self._name, self.proven)
            return True
        if last.get("active") is True:
            # The rescue is still waiting for its boot, so this is some other system.
            self._others.update(shown)
            self._silent_since = None
            self.words = "another system answers and the rescue has not been booted"
            return False
        if published:
            self.words = "the host keys that answer are none of those Robot reports for this rescue"
            if self._false_since is None:
                self._false_since = now
            if not self._false.intersection(shown):
                self._false, self._same_since = set(shown), now
            if now - self._same_since < FALSE_TAKES and now - self._false_since < PUBLISHING_TAKES:
                return False
            raise Permanent(
                f"the host keys that answer at {self._address} are none of those Robot reports for this rescue, so "
                f"nothing was sent to it: shown {_listed(map(sha256_fingerprint, shown))}, "
                f"reported {_listed(published)}. The connection is intercepted, another machine has this address, or "
                "this one has left its rescue for another system"
            )
        self.words = "something answers, and Robot reports no host keys of the rescue"
        self._silent_since = now if self._silent_since is None else self._silent_since
        return False


def ways_out(name: str) -> str:
    """What a user can do about a rescue whose host keys Robot does not tell."""
    return (
        "Robot tells the keys of a rescue that has just been started. To have it started again, name the machine: "
        f"{consent.extra_var('reinstall', [name])}. To trust the keys that answer: "
        f"{consent.extra_var('host_key_checking', 'accept-new')}"
    )


def _listed(fingerprints: Iterable[str]) -> str:
    return ", ".join(f"SHA256:{one[:64]}" for one in fingerprints)


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
        #: Whether an earlier run has armed it, or this one.
        self.armed_before = False
        self._armed_at: float | None = None
        self._first_reset: float | None = None

    def is_off(self) -> bool:
        """Whether the machine is switched off; what Robot does not know counts as powered."""
        types, self._power = self._routes.resets(self._deadline("the power status"))
        self.offered = types or self.offered
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
        self._run.result["changed"] = True
        replaced = self._routes.arm(self.fingerprints, self._deadline("the armed rescue"))
        theirs = [one for one in replaced if not (self.armed_before and one in _OURS)]
        if theirs:
            self._run.result["warning"] = (
                f"Robot had {text.listed(theirs)} for its next boot; the rescue of this run has replaced that"
            )
        self.armed_before = True
        self._armed_at = time.monotonic()
        self._run.result["armed"] = True

    def still_armed(self) -> bool:
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
        self._power = self._routes.resets(deadline)[1]
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
