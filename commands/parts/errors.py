# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways in which an installation ends early."""

from __future__ import annotations

import signal


class Refused(Exception):
    """The installation cannot go on; the text is the whole reason, for the user."""


class HttpStatus(Refused):
    """The server answered with an error status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Interrupted(Exception):
    """A transfer broke off in a way that another connection may heal, at the earliest after so many seconds."""

    def __init__(self, text: str, wait: int = 0):
        super().__init__(text)
        self.wait = wait


class Terminated(BaseException):
    """A signal asked the program to end."""

    def __init__(self, number: int):
        super().__init__("ended by %s" % signal.Signals(number).name)
        self.number = number
