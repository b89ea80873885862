# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What to do about a dedicated server, given who answers by SSH (pure).

A server that is powered may serve somebody, whatever it says to us: its first reset needs the consent of the user. A
server that is off is started into its rescue, since nothing on its disks is touched by that. A system that lets us in
is left alone unless the user named the machine.
"""

from __future__ import annotations

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
#: It is powered, we cannot tell what it runs, and nobody permitted the first reset.
REFUSE_LIVE = "refuse_live"
#: It is in a rescue that was not started for an intent of ours.
REFUSE_RESCUE = "refuse_rescue"
# state: os
DISARM = "disarm"
LEAVE_RESCUE = "leave_rescue"

# Who answers on the SSH port.
RESCUE, INSTALLED, OTHER, SILENT, DENIED = "rescue", "installed", "other", "silent", "denied"


class Sight:
    """What is known of a machine.

    ``reinstall``: the user's consent to give up its system. ``rearm``: an earlier call armed it and it did not arrive.
    ``armed``: whether the rescue is armed, asked for ``state: os`` only. ``answer``: None until somebody looked.
    ``proven``: whether an earlier run saw its new system with its own eyes. ``intended``: whether the rescue that
    answers was started for an open intent, None until somebody asked. ``may_reset``: the user's consent to the first
    reset. ``off``: whether Robot says so, None until somebody asked.
    """

    def __init__(
        self,
        answer=None,
        reinstall=False,
        rearm=False,
        armed=False,
        proven=False,
        intended=None,
        may_reset=False,
        off=None,
    ):
        self.answer = answer
        self.reinstall = reinstall
        self.rearm = rearm
        self.armed = armed
        self.proven = proven
        self.intended = intended
        self.may_reset = may_reset
        self.off = off


def towards_rescue(sight):
    """The next step for ``state: rescue``."""
    if sight.answer is None:
        return PROBE
    if sight.answer == RESCUE:
        if sight.rearm or sight.reinstall or sight.intended:
            return ATTACH
        return ASK_RESCUE if sight.intended is None else REFUSE_RESCUE
    if sight.answer == INSTALLED and not sight.reinstall:
        return LEAVE
    if sight.rearm:
        return GO_ON
    if sight.answer in (INSTALLED, OTHER):
        return ARM_AND_REBOOT if sight.reinstall else LEAVE
    if sight.reinstall:
        return ARM_AND_RESET
    if sight.proven:
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
