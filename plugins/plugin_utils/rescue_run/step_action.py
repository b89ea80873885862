# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugins of the SSH phase for plays of a user's own: one step on one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.plugins.action import ActionBase

from .host import Host


class StepAction(ActionBase):
    """Checks the options, and runs the step over the connection of the task."""

    specification: Callable[[], dict[str, Any]]
    step: Callable[[Host, dict[str, Any]], dict[str, Any]]

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task for one machine."""
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=self.specification())[1]
        host = Host(str((task_vars or {}).get("inventory_hostname", "")), self, lambda: self._connection)
        try:
            return self.step(host, given)
        finally:
            host.close()
