# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps machines with a permanent error out of later runs until a person says that they are repaired."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, names, safe_files, text
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.machine_quarantine_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        machines = given["machines"]
        names = [machine.get("name") for machine in machines]
        if None in names or len(set(names)) < len(names):
            raise AnsibleActionFail("machines: every machine needs a name, and each name may be given once")
        unknown = sorted(set(given["clear"]) - set(names))
        if unknown:
            raise AnsibleActionFail(f"clear: {', '.join(unknown)} not in machines; name machines of this call only")
        quarantine = Quarantine(given["quarantine_dir"])
        step = self._add if given["state"] == "set" else self._check
        try:
            results = [step(quarantine, machine, given["clear"]) for machine in machines]
        except QuarantineError as exc:
            raise AnsibleActionFail(f"quarantine_dir: {exc}") from exc
        closed = [f"{result['name']}: {result['msg']}" for result in results if result["failed"]]
        answer = {
            "changed": any(result["changed"] for result in results),
            "failed": bool(closed) and given["on_error"] == "fail" and given["state"] == "checked",
            "machines": results,
        }
        if closed and given["state"] == "checked":
            answer["msg"] = "\n".join(closed)
        added = [result["name"] for result in results if result["changed"]] if given["state"] == "set" else []
        if added and not self._task.check_mode:
            let_out = consent.extra_var("clear_quarantine", added)
            answer["warnings"] = [
                f"{text.listed(added)}: in quarantine now, since the same run would fail in the same way; later runs "
                f"leave it alone. Mend the reason, also where it is a variable of yours, then let it out: {let_out}"
            ]
        return answer

    def _check(self, quarantine: Quarantine, machine: dict[str, Any], clear: list[str]) -> dict[str, Any]:
        name = machine["name"]
        entry = quarantine.entry(name)
        if entry is None:
            return {**machine, "failed": False, "changed": False, "quarantined": False, "msg": ""}
        if name in clear:
            if not self._task.check_mode:
                quarantine.clear(name)
            return {**machine, "failed": False, "changed": True, "quarantined": False, "msg": "out of quarantine"}
        msg = f"in quarantine since {entry.since}: {entry.reason}. Mend it, then let it out: " + consent.extra_var(
            "clear_quarantine", [name]
        )
        return {**machine, "failed": True, "changed": False, "quarantined": True, "msg": msg}

    def _add(self, quarantine: Quarantine, machine: dict[str, Any], _clear: list[str]) -> dict[str, Any]:
        name, changed = machine["name"], False
        wanted = bool(machine.get("failed")) and bool(machine.get("permanent"))
        if wanted and self._task.check_mode:
            changed = quarantine.entry(name) is None
        elif wanted:
            reason = one_line(str(machine.get("msg") or "no reason given"), 1000).removeprefix(f"{name}: ")
            changed = quarantine.add(Entry(name, reason, text.to_rfc3339(time.time())))
        return {**machine, "failed": bool(machine.get("failed")), "changed": changed, "quarantined": wanted}


# --- machines that a person must look at before anything else is done to them: one small file each on the controller


class QuarantineError(Exception):
    """The folder cannot be read or written; the text names the path and the way out."""


@dataclass(frozen=True)
class Entry:
    """Why a machine is left alone, and since when (RFC 3339, UTC)."""

    name: str
    reason: str
    since: str


class Quarantine:
    """The folder of the entries. A damaged entry still keeps its machine in quarantine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def entry(self, name: str) -> Entry | None:
        """The entry of a machine, or nothing."""
        path = self._path(name)
        try:
            found = json_value(path.read_text(encoding="utf-8"))
            return Entry(name, one_line(str(found["reason"]), 1000), one_line(str(found["since"]), 40))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return Entry(name, f"unknown: {path} is damaged", "an unknown time")
        except OSError as exc:
            raise QuarantineError(f"{path} cannot be read ({exc.strerror}); make it readable") from exc

    def add(self, entry: Entry) -> bool:
        """Put a machine in quarantine; an older entry stays as it is. Returns whether there was none."""
        if self.entry(entry.name) is not None:
            return False
        path = self._path(entry.name)
        content = {"machine": entry.name, "reason": entry.reason, "since": entry.since}
        try:
            safe_files.write_json(str(path), content, durable=False)
        except OSError as exc:
            raise QuarantineError(safe_files.unwritable(path, exc)) from exc
        return True

    def clear(self, name: str) -> None:
        """End the quarantine of a machine."""
        path = self._path(name)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        except OSError as exc:
            raise QuarantineError(f"{path} cannot be removed ({exc.strerror}); remove it by hand") from exc

    def _path(self, name: str) -> Path:
        try:
            names.check_machine_name(name)
        except names.InvalidName as exc:
            raise QuarantineError(f"machine {name!r}: {exc}") from exc
        return self._folder / f"{name}.json"
