# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_steps
type: stdout
short_description: One line a step while one machine becomes a node
version_added: 1.0.0
description:
  - Shows each step of the roles P(kubenode.provision.base#role) and P(kubenode.provision.join#role) as it goes.
  - In a terminal the running step is shown as well, and every line has a sign; otherwise the lines suit a log.
  - Tasks that only compute are not shown, unless they fail; of debug tasks only the message is.
  - The program C(provision) uses it. It suits runs on a single machine, since lines do not name hosts.
requirements:
  - To be chosen as C(stdout_callback).
author:
  - kubenode.provision authors (@kubenode)
"""

import sys
import time
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase

from ansible_collections.kubenode.provision.plugins.plugin_utils.report import node_steps as _steps

#: they run on the controller and change nothing
_SILENT = {"set_fact", "include_tasks", "include_role", "include_vars", "import_tasks", "import_role", "meta", "assert"}
_SILENT |= {"fail", "validate_argument_spec", "add_host", "group_by"}
_COLORS = {
    _steps.OK: "COLOR_OK",
    _steps.CHANGED: "COLOR_CHANGED",
    _steps.FAILED: "COLOR_ERROR",
    _steps.IGNORED: "COLOR_WARN",
}


class CallbackModule(CallbackBase):
    """Lines as steps begin and end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "kubenode.provision.node_steps"

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout.isatty()
        self._began = time.monotonic()
        self._running = False

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task begins; a terminal sees its name at once."""
        self._began = time.monotonic()
        self._clear()
        if self._terminal and not self._silent(task.action) and _kind(task.action) != "debug":
            self._running = True
            sys.stdout.write("… " + _steps.title(_name(task))[:70])
            sys.stdout.flush()

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._display.error("no host matched: nothing was done")

    def v2_runner_on_ok(self, result: Any) -> None:
        data, task = result._result, result._task  # the only access that every supported ansible-core has
        if self._silent(task.action):
            return
        if _kind(task.action) == "debug":
            for line in _steps.message(data):
                self._display.display("  " + line)
            return
        self._show(task, data, _steps.CHANGED if data.get("changed") else _steps.OK)
        self._handle_warnings(data)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._failed(result, ignored=ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._failed(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._clear()

    def v2_on_file_diff(self, result: Any) -> None:
        diff = result._result.get("diff")
        if diff and not result._result.get("_ansible_no_log"):
            self._clear()
            shown = self._get_diff(diff)
            if shown:
                self._display.display(shown)

    def _failed(self, result: Any, ignored: bool = False) -> None:
        data, outcome = result._result, _steps.IGNORED if ignored else _steps.FAILED
        self._show(result._task, data, outcome)
        for line in _steps.reason(data):
            self._display.display("    " + line, color=getattr(constants, _COLORS[outcome]))
        self._handle_warnings(data)

    def _show(self, task: Any, data: dict[str, Any], outcome: str) -> None:
        self._clear()
        for step in _steps.steps(_name(task), data, time.monotonic() - self._began, outcome):
            self._display.display(step.line(self._terminal), color=getattr(constants, _COLORS[step.outcome]))

    def _clear(self) -> None:
        """Take the line of the running step away."""
        if self._running:
            self._running = False
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    @staticmethod
    def _silent(action: str) -> bool:
        return _kind(action) in _SILENT


def _name(task: Any) -> str:
    """The task's name without the role's in front."""
    return str(task.name or task.action)


def _kind(action: str) -> str:
    """A module's name without its collection's."""
    return action.rsplit(".", 1)[-1]
