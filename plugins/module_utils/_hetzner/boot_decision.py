# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What to do next with a machine, given its observed state: one decision table for both providers (pure).

Observing costs requests and SSH connections. So a decision first names what it lacks (one of QUESTIONS) and is asked
again with the answer; every other step is final.

A running server may be in production, also when it does not answer or refuses our SSH key. A system that accepts our
key is left alone unless the user named the machine. The first reset of a dedicated server that does not let us in needs
the user's consent; one that is switched off is started into its rescue, which changes nothing on its disks, unless an
earlier run has proven its system.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Proofs that need no login: an open port is enough, or nothing is checked.
PORT, NONE = "port", "none"
# What is still to be found out.
SETTLE = "settle"
ASK_HISTORY = "ask_history"
ASK_ARMED = "ask_armed"
PROBE = "probe"
ASK_RESCUE = "ask_rescue"
ASK_POWER = "ask_power"
ASK_KEYS = "ask_keys"
QUESTIONS = frozenset([SETTLE, ASK_HISTORY, ASK_ARMED, PROBE, ASK_RESCUE, ASK_POWER, ASK_KEYS])
# Arm the rescue, then boot.
ARM_AND_START = "arm_and_start"
ARM_AND_REBOOT = "arm_and_reboot"
ARM_AND_RESET = "arm_and_reset"
# An earlier call armed the rescue, and the machine did not reach it: start or reset it, or (dedicated) wait for the
# rest of that reset's time and go on with the next type of reset.
START = "start"
RESET = "reset"
CONTINUE = "continue"
#: The rescue answers: it is checked and used as it is.
ATTACH = "attach"
#: A system answers, or nothing is to be done: nothing is changed.
LEAVE = "leave"
# For the states ``os`` and ``disarmed``.
DISARM = "disarm"
LEAVE_RESCUE = "leave_rescue"
#: The server was not made by this collection, nor adopted.
REFUSE_FOREIGN = "refuse_foreign"
REFUSE_STATUS = "refuse_status"
#: It is off and was started before.
REFUSE_STARTED = "refuse_started"
#: Nothing answers by SSH; of a dedicated server: an earlier run finished its system, and it does not let us in.
REFUSE_SILENT = "refuse_silent"
REFUSE_DENIED = "refuse_denied"
#: A dedicated server runs an unknown system, and the user did not permit the first reset.
REFUSE_LIVE = "refuse_live"
#: The rescue that answers was not started for an intent of ours.
REFUSE_RESCUE = "refuse_rescue"

#: Statuses of a cloud server between two others.
PASSING = frozenset(["initializing", "starting", "stopping", "migrating", "rebuilding", "unknown"])

# Who answers on the SSH port.
RESCUE, INSTALLED, OTHER, SILENT, DENIED = "rescue", "installed", "other", "silent", "denied"


@dataclass
class ObservedState:
    """What is known of a machine; None: not asked yet."""

    #: The status of a cloud server; None for a dedicated one: Robot has none.
    status: str | None = None
    #: Who answers on the SSH port: RESCUE, INSTALLED, OTHER, SILENT or DENIED.
    answer: str | None = None
    #: The server was made by this collection, or adopted.
    ours: bool = True
    #: The user's consent to give up the system that runs.
    reinstall: bool = False
    #: An earlier call of this run armed the rescue, and the machine did not arrive in it.
    rearm: bool = False
    #: What a cloud server boots instead is what it was made of, not a system in use.
    fresh: bool = False
    #: Whether the rescue is armed, and whether this run did that.
    armed: bool | None = False
    armed_here: bool = False
    never_started: bool | None = None
    #: The consent of the open intent for which the rescue that answers was started; empty for a rescue of others.
    intended: str | None = None
    #: PORT or NONE: our installation was finished, and its system shows no more than that.
    unproven: str = ""
    #: Whether anything accepts connections on the SSH port.
    listens: bool = False
    #: An earlier run verified the installed system.
    proven: bool = False
    #: The user permits a reset although the system that runs is unknown.
    may_reset: bool = False
    #: Whether Robot says that the server is switched off.
    off: bool | None = None
    #: Whether the host keys of the rescue that answers are proven; a cloud's are on first contact.
    keys_proven: bool | None = None

    @property
    def dedicated(self) -> bool:
        return self.status is None

    @property
    def lets_us_in(self) -> bool:
        """Whether a system that is no rescue accepts our key."""
        return self.answer in (INSTALLED, OTHER)

    @property
    def locked_out(self) -> bool:
        """Whether SSH cannot show which system runs."""
        return self.answer in (SILENT, DENIED)


def towards_rescue(seen: ObservedState) -> str:
    """The next step for ``state: rescue``."""
    if not seen.ours and not seen.reinstall:
        return REFUSE_FOREIGN
    if seen.status in PASSING:
        return SETTLE
    if seen.status == "off":
        return _off(seen)
    if seen.status not in ("running", None):
        return REFUSE_STATUS
    if seen.answer is None:
        return PROBE
    if seen.answer == RESCUE:
        return _in_rescue(seen)
    if seen.lets_us_in and not (seen.answer == OTHER and seen.rearm and seen.fresh):
        if not seen.reinstall:
            return LEAVE
        return CONTINUE if seen.dedicated and seen.rearm else ARM_AND_REBOOT
    if seen.rearm:
        if seen.dedicated:
            return CONTINUE
        return RESET if seen.armed else ARM_AND_RESET
    return _locked_out(seen)


def _off(seen: ObservedState) -> str:
    if seen.rearm:
        return START if seen.armed else ARM_AND_START
    if seen.reinstall:
        return ARM_AND_START
    if seen.never_started is None:
        return ASK_HISTORY
    return ARM_AND_START if seen.never_started else REFUSE_STARTED


def _in_rescue(seen: ObservedState) -> str:
    """A person may be at work in a rescue that was not started for an intent of ours."""
    if not (seen.rearm or seen.reinstall or seen.intended):
        return ASK_RESCUE if seen.intended is None else REFUSE_RESCUE
    if seen.dedicated and seen.keys_proven is None:
        return ASK_KEYS
    if seen.dedicated and not (seen.keys_proven or seen.rearm) and (seen.reinstall or seen.may_reset):
        # Robot tells the keys of a rescue that has just been started.
        return ARM_AND_RESET
    return ATTACH


def _locked_out(seen: ObservedState) -> str:
    # A dedicated server may be switched off, and then only its power button helps.
    ask_power = seen.dedicated and seen.answer == SILENT and seen.off is None
    if seen.reinstall:
        return ASK_POWER if ask_power else ARM_AND_RESET
    if seen.unproven == NONE and ask_power:
        return ASK_POWER
    if (seen.unproven == NONE and not seen.off) or (seen.unproven and seen.listens):
        return LEAVE
    if not seen.dedicated:
        return REFUSE_SILENT if seen.answer == SILENT else REFUSE_DENIED
    if seen.proven or seen.unproven:
        # Perhaps a node whose network is down.
        return REFUSE_SILENT
    if seen.may_reset:
        return ARM_AND_RESET
    if ask_power:
        return ASK_POWER
    return ARM_AND_RESET if seen.off else REFUSE_LIVE


def towards_disarmed(seen: ObservedState) -> str:
    """The next step for ``state: disarmed``: a rescue that a person armed stays armed."""
    if not seen.ours:
        return REFUSE_FOREIGN
    if seen.status in PASSING:
        return SETTLE
    if seen.armed is None:
        return ASK_ARMED
    return DISARM if seen.armed and seen.armed_here else LEAVE


def towards_os(seen: ObservedState) -> str:
    """The next step for ``state: os``."""
    if not seen.ours:
        return REFUSE_FOREIGN
    if seen.status in PASSING:
        return SETTLE
    if seen.status == "off":
        return DISARM if seen.armed else LEAVE
    if seen.status not in ("running", None):
        return REFUSE_STATUS
    if seen.answer is None:
        return PROBE
    if seen.armed is None:
        return ASK_ARMED
    if seen.answer == RESCUE:
        return LEAVE_RESCUE
    if seen.armed:
        return DISARM
    if seen.lets_us_in or seen.dedicated:
        return LEAVE
    return REFUSE_SILENT if seen.answer == SILENT else REFUSE_DENIED
