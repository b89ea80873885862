# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong with dedicated servers in particular."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import MachineError, Refused

UNAUTHORIZED = (
    "Robot refused the credentials (401), so nothing more was sent. Check robot_user and robot_password, or "
    "HROBOT_API_USER and HROBOT_API_PASSWORD: they are those of the webservice user (#ws+…) made in Robot's settings, "
    "not those of the login. After 3 failed logins Robot blocks this address for 10 minutes, and then refuses right "
    "credentials too."
)


class Permanent(MachineError):
    """One machine failed, and trying again will not mend it."""

    permanent = True


class LimitSpent(Refused):
    """The hourly limit of a route is used up: not this machine's fault, and it was left as it is."""


class NotArrived(Permanent):
    """Every way to reset the machine was tried and its rescue did not come."""


class HandedBack(Exception):
    """The rescue has not come yet, and somebody else will wait for it."""


class LeftAlone(Exception):
    """A system of ours answers that must not be reset; the text says which."""
