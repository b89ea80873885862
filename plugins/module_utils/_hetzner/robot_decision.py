# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What to do about a dedicated server, given who answers by SSH (pure).

A running server may be in production, also when it does not answer or refuses our SSH key: its first reset needs the
consent of the user. A server that is switched off is started into its rescue, which changes nothing on its disks. A
system that accepts our key is left alone unless the user named the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from .intent_store import NONE

PROBE = "probe"
ASK_RESCUE = "ask_rescue"
ASK_POWER = "ask_power"
#: Its rescue answers; it is checked and left there.
ATTACH = "attach"
ARM_AND_REBOOT = "arm_and_reboot"
ARM_AND_RESET = "arm_and_reset"
#: An earlier call armed and reset it: wait for the rest of that step, then go on with the next one.
GO_ON = "go_on"
LEAVE = "leave"
#: It ran a system that an earlier run proved, and says nothing now: perhaps a node whose network is down.
REFUSE_SILENT = "refuse_silent"
#: It runs an unknown system, and the user did not permit the first reset.
REFUSE_LIVE = "refuse_live"
#: It is in a rescue that was not started for an intent of ours.
REFUSE_RESCUE = "refuse_rescue"
# state: os
DISARM = "disarm"
LEAVE_RESCUE = "leave_rescue"

# Who answers on the SSH port.
RESCUE, INSTALLED, OTHER, SILENT, DENIED = "rescue", "installed", "other", "silent", "denied"


@dataclass
class Sight:
    """What is known of a machine; None is what nobody has asked yet."""

    answer: str | None = None
    #: The user gives up the system that runs.
    reinstall: bool = False
    #: An earlier call activated the rescue, and the machine did not arrive in it.
    rearm: bool = False
    #: Whether the rescue is activated; asked for ``state: os`` only.
    armed: bool = False
    #: An earlier run verified the installed system.
    proven: bool = False
    #: Whether the rescue that answers was started for an open intent.
    intended: bool | None = None
    #: The user permits a reset although the system that runs is unknown.
    may_reset: bool = False
    #: PORT or NONE: our installation was finished, and its system shows no more than that; whether a port is open.
    unproven: str = ""
    listens: bool = False
    #: Whether Robot says that the server is switched off.
    off: bool | None = None


def towards_rescue(sight):
    """The next step for ``state: rescue``."""
    if sight.answer is None:
        return PROBE
    if sight.answer == RESCUE:
        if sight.rearm or sight.reinstall or sight.intended:
            return ATTACH
        return ASK_RESCUE if sight.intended is None else REFUSE_RESCUE
    if sight.answer in (INSTALLED, OTHER) and not sight.reinstall:
        return LEAVE
    if sight.rearm:
        return GO_ON
    if sight.answer in (INSTALLED, OTHER):
        return ARM_AND_REBOOT
    if sight.reinstall:
        # What is given up may be switched off, where nothing but the power button helps.
        return ASK_POWER if sight.answer == SILENT and sight.off is None else ARM_AND_RESET
    if sight.unproven == NONE and sight.answer == SILENT and sight.off is None:
        return ASK_POWER
    if (sight.unproven == NONE and not sight.off) or (sight.unproven and sight.listens):
        return LEAVE
    if sight.proven or sight.unproven:
        return REFUSE_SILENT
    if sight.may_reset:
        return ARM_AND_RESET
    if sight.answer == SILENT and sight.off is None:
        return ASK_POWER
    return ARM_AND_RESET if sight.off else REFUSE_LIVE


def towards_os(sight):
    """The next step for ``state: os``."""
    if sight.answer is None:
        return PROBE
    if sight.answer == RESCUE:
        return LEAVE_RESCUE
    return DISARM if sight.armed else LEAVE
