# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Plans all settings, then applies them in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import info
from ..host import RELOAD, Pending
from . import files, setting_spec, swap, system, units
from .context import Context, Setting, SettingError, Step

_PLANNERS = {
    "file": files.plan_file,
    "directory": files.plan_directory,
    "link": files.plan_link,
    "absent": files.plan_absent,
    "module": system.plan_module,
    "sysctl": system.plan_sysctl,
    "swap": swap.plan_swap,
    "unit": units.plan_unit,
    "handler": system.plan_handler,
    "hold": system.plan_hold,
    "selinux": system.plan_selinux,
    "firewall": system.plan_firewall,
    "hostname": system.plan_hostname,
}


class Planned(NamedTuple):
    """A setting, what it does, and the changes that it waited for."""

    setting: Setting
    step: Step
    heard: list[str]


class PlanError(Exception):
    """Settings that cannot be reached; nothing was changed. ``errors`` has a line for each."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class ApplyError(Exception):
    """A setting failed; ``failed`` is its id, ``results`` are those that came before it."""

    def __init__(self, text: str, failed: str | None, results: list[dict[str, Any]]) -> None:
        super().__init__(text)
        self.failed, self.results = failed, results


def plan(context: Context, settings: Sequence[Setting], only: Sequence[str] = ()) -> list[Planned]:
    """A :class:`Planned` for every setting whose step is wanted; raises PlanError."""
    wanted = [setting for setting in settings if not only or setting["step"] in only]
    names = [info.unit_name(setting["name"]) for setting in wanted if setting["kind"] == "unit"]
    modules = [setting["name"] for setting in wanted if setting["kind"] == "module"]
    planned, errors = [], []
    try:
        context.look_at(names, modules)
    except SettingError as error:
        raise PlanError([str(error)]) from error
    for setting in wanted:
        try:
            step = _PLANNERS[setting["kind"]](context, setting)
        except (SettingError, OSError) as error:
            errors.append("setting %s: %s" % (setting["id"], error))
            continue
        if step.changed:
            context.changed.add(setting["id"])
        planned.append(Planned(setting, step, context.heard(setting["id"], setting_spec.listens(setting))))
    if errors:
        raise PlanError(errors)
    return planned


def apply(
    context: Context,
    planned: Sequence[Planned],
    settings: Sequence[Setting],
    clock: Callable[[], float] = time.monotonic,
) -> list[dict[str, Any]]:
    """Do what was planned; returns the results; raises ApplyError."""
    pending = context.pending
    results: list[dict[str, Any]] = []
    waited = {key for setting in settings for key in setting_spec.listens(setting)}
    context.reload_owed = RELOAD in pending.ids()
    if context.reload_comes:
        pending.add([RELOAD])
    # what another task changed is remembered from here on
    pending.add(sorted((context.changed & waited) - {item.setting["id"] for item in planned}))
    for item in planned:
        setting, step = item.setting, item.step
        begin = clock()
        try:
            if step.changed and setting["id"] in waited:
                pending.add([setting["id"]])
            job = step.act if step.changed else step.check
            if job:
                job()
            pending.notified(setting["id"], item.heard)
        except (SettingError, OSError) as error:
            raise ApplyError(_failure(setting, error, results), setting["id"], results) from error
        results.append(result(item, clock() - begin))
    try:
        context.reload()
    except SettingError as error:
        raise ApplyError(str(error), None, results) from error
    _forget(pending, settings)
    return results


def result(item: Planned, seconds: float = 0.0) -> dict[str, Any]:
    """What a step's result says."""
    setting, step = item.setting, item.step
    return {
        "id": setting["id"],
        "step": setting["step"],
        "kind": setting["kind"],
        "changed": step.changed,
        "before": step.before,
        "after": step.after,
        "reason": step.reason,
        "seconds": round(seconds, 3),
    }


def diffs(planned: Sequence[Planned]) -> list[dict[str, str]]:
    """A diff for every setting that changes."""
    found = []
    for item in planned:
        if item.step.changed:
            header = "%s (%s)" % (item.setting["id"], item.step.reason)
            plain = {
                "before_header": header,
                "after_header": header,
                "before": "%s\n" % item.step.before,
                "after": "%s\n" % item.step.after,
            }
            found.append(item.step.diff or plain)
    return found


def _failure(setting: Setting, error: Exception, results: list[dict[str, Any]]) -> str:
    changed = [entry["id"] for entry in results if entry["changed"]]
    text = "setting %s (%s) failed: %s" % (setting["id"], setting["kind"], error)
    return "%s. Applied before it: %s. A rerun goes on from here" % (text, ", ".join(changed) or "nothing")


def _forget(pending: Pending, settings: Sequence[Setting]) -> None:
    """Drop the changes that every unit and handler that waits for them has taken over."""
    mine = {setting["id"] for setting in settings}
    for key in pending.ids():
        waiting = [setting["id"] for setting in settings if key in setting_spec.listens(setting)]
        if (waiting or key in mine) and all(key not in pending.ids(who) for who in waiting):
            pending.drop([key])
