# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH phase of a fleet: one process, one thread a machine, and no machine waits for another one."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import connection_loader

from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display, fleet_state
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import report_files
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import machine_install
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Host, Turns


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.machine_install_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        names = [machine["name"] for machine in given["machines"]]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise AnsibleActionFail(f"machines: {', '.join(twice)} are named more than once; name each machine once")
        if given["throttle"] < 0:
            raise AnsibleActionFail(f"throttle {given['throttle']}: use a number of machines, or 0 for all of them")
        machine_install.poll_by_size(given["machines"])
        turns = Turns(given["throttle"])
        hostvars = task_vars.get("hostvars", {})
        work = [
            (
                Host(machine["name"], self, self._way_to(machine, hostvars), hostvars.get(machine["name"]), turns),
                machine,
            )
            for machine in given["machines"]
        ]
        take = functools.partial(_taken, variables=given["variables"])
        found = display.each(work, take, display.view_of(names, given["progress"]))
        results = [
            _unexpected(name, result) if isinstance(result, Exception) else result
            for name, result in zip(names, found, strict=True)
        ]
        failed = [result for result in results if result["failed"]]
        answer = {
            "changed": any(result["changed"] for result in results),
            "failed": bool(failed) and given["on_error"] == "fail",
            "machines": results,
            "by_name": {result["name"]: result for result in results},
        }
        if failed:
            answer["msg"] = "\n".join(result["msg"] for result in failed)
        diffs = [one for result in results for one in machine_install.diffs(result)]
        if diffs:
            answer["diff"] = diffs
        return answer

    def _way_to(self, machine: Mapping[str, Any], hostvars: Mapping[str, Any]) -> Callable[[], Any]:
        """A connection as root on port 22, in all else as the inventory says."""
        variables = hostvars.get(machine["name"], {})
        name = str(variables.get("ansible_connection") or C.DEFAULT_TRANSPORT)
        play_context = copy.copy(self._play_context)
        play_context.remote_addr = machine["address"] or variables.get("ansible_host") or machine["name"]
        play_context.remote_user, play_context.port = "root", 22
        connection = connection_loader.get("ssh" if name == "smart" else name, play_context, None)
        known = C.config.get_plugin_vars("connection", connection._load_name)
        # Templates are rendered here, in the first thread.
        connection.set_options(var_options={one: variables[one] for one in known if one in variables})
        for option, value in (("host", play_context.remote_addr), ("remote_user", "root"), ("port", 22)):
            if option in connection.option_definitions:
                connection.set_option(option, value)
        return lambda: connection


def _taken(work: tuple[Host, dict[str, Any]], variables: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    try:
        result = machine_install.run(*work, variables)
    except Exception as exc:
        display.ended(work[0].name, fleet_state.FAILED, _unexpected(work[0].name, exc)["msg"])
        raise
    # The report has it before the slowest machine is done.
    report_files.note(result["name"], result, failed=result["failed"])
    return result


def _unexpected(name: str, error: Exception) -> dict[str, Any]:
    """A machine that met an error of ours or of its controller."""
    text = f"{name}: {type(error).__name__}: {one_line(str(error), 500)}. -vvv shows where; please report it"
    if isinstance(error, OSError) and safe_files.is_full(error) and error.filename:
        text = f"{name}: {one_line(safe_files.unwritable(error.filename, error), 500)}"
    nothing: dict[str, Any] = {"late": False, "runs": False, "transitions": [], "steps": {}, "warned": []}
    return {"name": name, "changed": True, "failed": True, "msg": text, **nothing}
