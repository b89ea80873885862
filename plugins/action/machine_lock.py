# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps two runs of one controller from working on the same machine at the same time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._common import names
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display
from ansible_collections.kubenode.provision.plugins.plugin_utils.records.locks import Holder, LockError, Locks, this_run


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Take the locks of all machines, or none."""
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=options.machine_lock_spec())[1]
        refused = {name: names.machine_error(name) for name in given["names"]}
        if any(refused.values()):
            raise AnsibleActionFail(
                "; ".join(f"machine {name!r:.100}: {text}" for name, text in refused.items() if text)
            )
        locks = Locks(given["lock_dir"])
        run = this_run(os.getppid())  # a worker ends with its task; the run is its parent
        if given["state"] == "released":
            return self._release(locks, given["names"], run)
        try:
            others = (locks.others if self._task.check_mode else locks.take)(given["names"], run)
        except LockError as exc:
            raise AnsibleActionFail(f"lock_dir: {exc}") from exc
        busy = {name: holder for name, holder in others.items() if holder.lives}
        for name, holder in others.items():
            if name not in busy:
                display.warning(
                    f"{name}: a run on {holder.host} began to work on it at {holder.since}; if that run is still going "
                    "on, the two disturb each other"
                )
        answer = {"changed": False, "failed": False, "machines": sorted(busy)}
        if busy and self._task.check_mode:
            display.warning(_text(busy))
        elif busy:
            answer.update(failed=True, msg=f"{_text(busy)}. Nothing was changed")
        return answer

    def _release(self, locks: Locks, machines: list[str], run: Holder) -> dict[str, Any]:
        if not self._task.check_mode:
            try:
                locks.release(machines, run)
            except LockError as exc:
                raise AnsibleActionFail(f"lock_dir: {exc}") from exc
        return {"changed": False, "failed": False, "machines": []}


def _text(busy: Mapping[str, Holder]) -> str:
    runs: dict[Holder, list[str]] = {}
    for name in sorted(busy):
        runs.setdefault(busy[name], []).append(name)
    texts = [
        f"{', '.join(theirs)}: another run works on {'it' if len(theirs) == 1 else 'them'} (process {run.pid} of this "
        f"controller, since {run.since})"
        for run, theirs in runs.items()
    ]
    limit = ":".join(["all", *(f"!{name}" for name in sorted(busy))])
    return f"{'; '.join(texts)}. Wait for its end, or leave {'it' if len(busy) == 1 else 'them'} out: --limit '{limit}'"
