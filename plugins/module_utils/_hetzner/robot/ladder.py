# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which way to reset a machine comes next, from the gentlest to the last (pure)."""

from __future__ import annotations

SSH, SW, HW, POWER, WOL = "ssh", "sw", "hw", "power", "wol"

#: How Robot says that a server is off; other words for its state say less.
SHUT_OFF = "shut off"
RUNNING = "running"

_ROWS = {SSH: 0, SW: 1, HW: 2, POWER: 3, WOL: 4}


def next_way(offered, tried, status=None, by_ssh=False, wol=False):
    """The next way, or None when all were tried.

    ``offered``: Robot's reset types of the server; ``tried``: the ways so far, in order; ``status``: what Robot says of
    its power, None when nobody asked; ``by_ssh``: a system that may be rebooted lets us in; ``wol``: it can be woken.
    A technician (man) is never sent, and the long press (power_long) never made.
    """
    if status == SHUT_OFF:
        # Neither keys nor the reset button start a server that is off; a press that shut it down needs a second one.
        if POWER in offered and tried.count(POWER) < 2:
            return POWER
        return WOL if wol and WOL not in tried else None
    reached = max((_ROWS[way] for way in tried if way in _ROWS), default=-1)
    if by_ssh and reached < 0:
        return SSH
    for way in (SW, HW):
        if way in offered and reached < _ROWS[way]:
            return way
    if POWER in offered and reached <= _ROWS[POWER] and tried.count(POWER) < (1 if status == RUNNING else 2):
        return POWER
    # A network boot may be missed once.
    if HW in offered and tried.count(HW) < 2:
        return HW
    return WOL if wol and WOL not in tried else None
