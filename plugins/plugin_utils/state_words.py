# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words for each boot state: in the line and the table of a running task, and on the page of the report."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kubenode.provision.plugins.module_utils import _states


@dataclass(frozen=True)
class Words:
    """What a machine does in one boot state."""

    #: In the line that sums a fleet up: "3 writing".
    line: str
    #: In a column of the table, at most nine characters.
    column: str
    #: On a machine's bar on the page, and in the page's legend; empty for states in which no time is spent.
    letter: str = ""
    legend: str = ""


#: The order is that of the line that sums a fleet up.
WORDS = {
    _states.RUNNING_IMAGE_COMMAND: Words("writing", "writing", "C", "the image command runs"),
    _states.BOOTING_TO_REAL_OS: Words(
        "booting the new system", "booting", "B", "boots its new system, until that is proven"
    ),
    _states.OPERATING_SYSTEM_RUNNING: Words("in the new system", "runs"),
    _states.BOOTING_TO_RESCUE: Words("waiting for the rescue", "to rescue", "R", "boots into its rescue"),
    _states.ENABLING_RESCUE: Words("arming the rescue", "arming", "E", "its rescue is armed"),
    _states.INITIALIZING: Words("being created", "creating", "I", "is created"),
    _states.UNSET: Words("beginning", "begins", "Q", "is requested"),
    _states.PROVISIONING_FAILED: Words("failing", "failing"),
}
