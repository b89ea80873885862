# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugins that do on the controller all that their module is for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase


class ControllerAction(ActionBase):
    """Checks the options, then does the work; no machine is connected to."""

    specification: Callable[[], dict[str, Any]]

    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task, once for all the machines that it names."""
        super().run(tmp, task_vars)
        return self.work(self.validate_argument_spec(argument_spec=self.specification())[1], task_vars or {})

    @abstractmethod
    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """The result of the task; ``given``: its options."""
