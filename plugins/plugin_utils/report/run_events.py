# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of the machines of an SSH phase, as Kubernetes Events and as figures for a workflow (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line

from .results import without_output

#: Step of machine_install → how its reasons begin; the first two are those of CAPH.
_COMMANDS = {"image_url_command": "ImageURLCommand", "robot_installimage": "InstallImage"}
#: Failed machines that a summary names, and characters of their reasons: workflows keep it in a database.
NAMED, REASON = 100, 200

Event = dict[str, Any]


class BadObject(ValueError):
    """``kubenode_event_object`` is no object of Kubernetes."""


def events(
    machines: Iterable[Mapping[str, Any]], hostvars: Mapping[str, Mapping[str, Any]], last_try: bool = False
) -> list[Event]:
    """The option ``events`` of cluster_event for results of machine_install; raises :class:`BadObject`.

    A machine that succeeded has one, and so has one that failed; only a command that succeeded on a machine that failed
    later has its own beside it. A machine that was left alone, or that another try follows for, has none.
    """
    found = []
    for machine in machines:
        about = [*_of({**machine, "failed": machine.get("failed") or (last_try and machine.get("late"))})]
        if about:
            name = str(machine["name"])
            where = {"object": object_of(name, hostvars.get(name, {})), "subject": name}
            found += [{**where, **event} for event in about]
    return found


def object_of(name: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """The object of Kubernetes that the Events of a machine are about: by default its Node."""
    given = variables.get("kubenode_event_object")
    if given is None:
        node = next((variables[one] for one in ("kubenode_node_name", "join_node_name") if variables.get(one)), name)
        return {"kind": "Node", "name": str(node).lower()}
    known = ("kind", "name", "namespace", "api_version")
    if not isinstance(given, Mapping) or not {"kind", "name"} <= set(given) <= set(known):
        raise BadObject(f"{name}: kubenode_event_object: give a dictionary with kind and name, and perhaps {known[2:]}")
    return {key: str(given[key]) for key in known if given.get(key)}


def _of(machine: Mapping[str, Any]) -> Iterable[Event]:
    steps, failed = machine.get("steps") or {}, bool(machine.get("failed"))
    if machine.get("late") and not failed:
        return
    step = next((one for one in _COMMANDS if one in steps), "")
    command = steps.get(step) or {}
    ran = bool(command) and command.get("in_rescue") is not False
    if ran:
        yield _command_event(machine, _COMMANDS[step], command, failed)
    if failed and not (ran and command.get("failed")):
        yield {"reason": "ProvisioningFailed", "type": "Warning", "text": _said(machine, machine)}
    elif not failed and not ran and "machine_boot" in steps:
        yield {"reason": "ProvisioningSucceeded", "text": f"{_said(machine, machine)}{_proof(machine)}"}


def _command_event(machine: Mapping[str, Any], noun: str, command: Mapping[str, Any], failed: bool) -> Event:
    text, output = _said(machine, command), _output(command)
    if command.get("failed"):
        return {"reason": f"{noun}Failed", "type": "Warning", "text": text, "output": output}
    return {"reason": f"{noun}Succeeded", "text": text + ("" if failed else _proof(machine)), "output": output}


def _said(machine: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The message of a result with the machine in front, without the output that follows it."""
    text = without_output(str(result.get("msg") or "no reason given")).partition("\ndebug.txt ends with:")[0]
    return one_line(f"{machine['name']}: {text.removeprefix(str(machine['name']) + ': ')}", 700)


def _proof(machine: Mapping[str, Any]) -> str:
    if not isinstance(machine.get("verified"), bool):
        return ""
    return f"; the new system is verified ({machine.get('proof')})" if machine["verified"] else "; not verified"


def _output(command: Mapping[str, Any]) -> list[str]:
    """The last lines of both streams; they were masked where they were read."""
    lines = command.get("interleaved_tail") or []
    return [(str(line).split(" ", 2) + ["", ""])[2] for line in lines] or list(command.get("stdout_tail") or [])


def run_summary(
    machines: Iterable[Mapping[str, Any]],
    phase: Iterable[Mapping[str, Any]],
    hostvars: Mapping[str, Any],
    api_calls: int = 0,
    again: bool = False,
    earlier: Iterable[str] = (),
) -> dict[str, Any]:
    """:func:`summary` for a playbook, which may try machines ``again``.

    The figures of the first try are in the variable ``kubenode_summary`` of its hosts. ``earlier``: the machines of the
    batches before this one, the latest first; their figures are among those that this returns.
    """
    phase = list(phase)
    until_now = next(filter(None, (_kept(hostvars, name) for name in earlier)), None)
    before = next(filter(None, (_kept(hostvars, one["name"]) for one in phase)), None) if again else None
    found = summary(machines, phase, api_calls, before)
    if until_now is None:
        return found
    if before is not None:  # the others are among these already
        return {**found, "api_calls": found["api_calls"] + until_now["api_calls"]}
    figures = {key: found[key] + until_now[key] for key in found if key != "reasons"}
    reasons = {**until_now["reasons"], **found["reasons"]}
    return {**figures, "reasons": dict(list(reasons.items())[:NAMED])}


def _kept(hostvars: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The summary that an earlier task of the run has registered for a host."""
    task = hostvars[name].get("kubenode_summary") if name in hostvars else None
    return task["ansible_stats"]["data"]["kubenode_summary"] if task else None


def summary(
    machines: Iterable[Mapping[str, Any]],
    phase: Iterable[Mapping[str, Any]] = (),
    api_calls: int = 0,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Figures of a fleet: ``{"machines", "verified", "unverified", "changed", "failed", "reasons", "api_calls"}``.

    ``machines``: results of machine_install; ``phase``: those of the API phase for all machines of the run, of two
    entries with one name the first one counts. ``before``: the figures of this run until now, in which ``machines``
    count as failed, since they were late.
    """
    first = not before  # a template without native types makes an empty text of none
    said: dict[str, dict[str, Any]] = {}
    for one in phase:
        said.setdefault(str(one["name"]), {**one, "late": not one.get("installed")})
    ended = {str(machine["name"]): dict(machine) for machine in machines}
    figures = {"machines": 0, "verified": 0, "unverified": 0, "changed": 0, "failed": 0, **(before or {})}
    reasons = {name: text for name, text in figures.pop("reasons", {}).items() if name not in ended}
    if first:
        figures["machines"] = len({**said, **ended})
    else:
        figures["failed"] -= len(ended)
    for name, machine in ({**said, **ended} if first else ended).items():
        api = said.get(name, {})
        if first:
            figures["changed"] += bool(machine.get("changed") or api.get("changed"))
        if machine.get("failed") or machine.get("late"):
            figures["failed"] += 1
            if len(reasons) < NAMED:
                reasons[name] = _said({"name": name}, machine).removeprefix(f"{name}: ")[:REASON]
        elif machine.get("verified", api.get("proven")):
            figures["verified"] += 1
        else:
            figures["unverified"] += 1
    return {**figures, "reasons": reasons, "api_calls": int(api_calls or 0)}
