# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a step of the SSH phase gets from Ansible: the machine, the way to it, files of the controller, the mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ..ssh.remote import Remote
from . import image_inputs
from .flow import Flow


class Host:
    """One machine, from its first step to its last: all steps share the connection."""

    def __init__(
        self,
        name: str,
        action: ActionBase,
        connect: Callable[[], Any] | None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """``connect`` makes a connection of Ansible, when a step needs it; without it, options are checked only.

        ``variables``: of the host, when the options come from them.
        """
        self.name, self.only_checks = name, connect is None
        self.check_mode = self.only_checks or bool(action._task.check_mode)
        self.diff = bool(action._task.diff)
        self.find_file, self.read_file = (
            image_inputs.file_finder(action, variables),
            image_inputs.file_reader(action, variables),
        )
        self._connect = connect
        self._remote: Remote | None = None

    @property
    def remote(self) -> Remote:
        """The way to the machine."""
        if self._remote is None:
            if self._connect is None:
                raise RuntimeError("a check of options does not speak to machines")
            self._remote = Remote(self._connect())
        return self._remote

    def flow(self, given: Mapping[str, Any]) -> Flow:
        """The way of a step with these options."""
        return Flow(given, self.name)

    def close(self) -> None:
        """Leave the machine."""
        if self._remote is not None:
            self._remote.end()
