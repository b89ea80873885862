# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What to do about a machine, given what is seen of it (pure): the tables of docs/design.md as functions.

Seeing costs requests and SSH connections, so a table first asks for what it lacks (SETTLE, ASK_HISTORY, PROBE) and is
asked again; every other step is final.
"""

from __future__ import annotations

from dataclasses import dataclass

from .intent_store import NONE

# What is still to be found out.
SETTLE = "settle"
ASK_HISTORY = "ask_history"
PROBE = "probe"
ASK_RESCUE = "ask_rescue"
# Arm, then boot.
ARM_AND_START = "arm_and_start"
ARM_AND_REBOOT = "arm_and_reboot"
ARM_AND_RESET = "arm_and_reset"
# The rescue is armed already and was not reached.
START = "start"
RESET = "reset"
# Nothing to do.
ATTACH = "attach"
LEAVE = "leave"
# state: os
DISARM = "disarm"
LEAVE_RESCUE = "leave_rescue"
# Left alone, and said why.
REFUSE_FOREIGN = "refuse_foreign"
REFUSE_STATUS = "refuse_status"
REFUSE_STARTED = "refuse_started"
REFUSE_SILENT = "refuse_silent"
REFUSE_DENIED = "refuse_denied"
REFUSE_RESCUE = "refuse_rescue"

PASSING = frozenset(["initializing", "starting", "stopping", "migrating", "rebuilding", "unknown"])

# Who answers on the SSH port.
RESCUE, INSTALLED, OTHER, SILENT, DENIED = "rescue", "installed", "other", "silent", "denied"


@dataclass
class Sight:
    """What is known of a machine; None is what nobody has asked yet."""

    status: str
    ours: bool = True
    #: The user's consent to overwrite it.
    reinstall: bool = False
    #: This run enabled the rescue, and the machine did not arrive in it.
    rearm: bool = False
    #: What it boots instead is what the server was made of, not a system in use.
    fresh: bool = False
    #: Whether the rescue is enabled, and whether this run did that.
    armed: bool = False
    never_started: bool | None = None
    answer: str | None = None
    #: The consent of the open intent for which the rescue that answers was started; empty for a rescue of others.
    intended: str | None = None
    #: PORT or NONE: our installation was finished, and its system shows no more than that; whether a port is open.
    unproven: str = ""
    listens: bool = False
    armed_here: bool = False


def towards_rescue(sight):
    """The next step for ``state: rescue``."""
    if not sight.ours and not sight.reinstall:
        return REFUSE_FOREIGN
    if sight.status in PASSING:
        return SETTLE
    if sight.status == "off":
        return _off(sight)
    if sight.status == "running":
        return _running(sight)
    return REFUSE_STATUS


def _off(sight):
    if sight.rearm:
        return START if sight.armed else ARM_AND_START
    if sight.reinstall:
        return ARM_AND_START
    if sight.never_started is None:
        return ASK_HISTORY
    return ARM_AND_START if sight.never_started else REFUSE_STARTED


def _running(sight):
    if sight.answer is None:
        return PROBE
    if sight.answer == RESCUE:
        return _in_rescue(sight)
    if sight.answer == INSTALLED or (sight.answer == OTHER and not (sight.rearm and sight.fresh)):
        return ARM_AND_REBOOT if sight.reinstall else LEAVE
    if sight.rearm:
        return RESET if sight.armed else ARM_AND_RESET
    if sight.reinstall:
        return ARM_AND_RESET
    if sight.unproven == NONE or (sight.unproven and sight.listens):
        return LEAVE
    return REFUSE_SILENT if sight.answer == SILENT else REFUSE_DENIED


def _in_rescue(sight):
    """A person may be at work in a rescue that was not started for an intent of ours."""
    if sight.rearm or sight.reinstall or sight.intended:
        return ATTACH
    return ASK_RESCUE if sight.intended is None else REFUSE_RESCUE


def towards_disarmed(sight):
    """The next step for ``state: disarmed``: a rescue that a person enabled stays enabled."""
    if not sight.ours:
        return REFUSE_FOREIGN
    if sight.status in PASSING:
        return SETTLE
    return DISARM if sight.armed and sight.armed_here else LEAVE


def towards_os(sight):
    """The next step for ``state: os``."""
    if not sight.ours:
        return REFUSE_FOREIGN
    if sight.status in PASSING:
        return SETTLE
    if sight.status == "off":
        return DISARM if sight.armed else LEAVE
    if sight.status != "running":
        return REFUSE_STATUS
    if sight.answer is None:
        return PROBE
    if sight.answer == RESCUE:
        return LEAVE_RESCUE
    if sight.armed:
        return DISARM
    if sight.answer in (INSTALLED, OTHER):
        return LEAVE
    return REFUSE_SILENT if sight.answer == SILENT else REFUSE_DENIED
