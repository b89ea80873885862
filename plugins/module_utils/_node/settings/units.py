# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""systemd units: enabled, masked, started, and restarted when something they read has changed."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from .. import info
from ..host import Host
from .context import SYSTEMD_FOLDERS, Context, Setting, SettingError, Step, same
from .files import tail

#: Seconds until a unit must be active, where the unit says less, and where it says nothing or more than the second.
WAIT, _LONGEST_WAIT = 30, 600
#: So much longer than systemd's own limit, in seconds, so that its judgement is seen.
_LATER = 5
_SPAN = re.compile(r"([0-9]{1,9})(us|ms|s|min|h|d|w|month|y)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
#: A simple service counts as started before it has even begun; it must live that long (seconds).
_SETTLE = 1.0
_RUNNING = ("active", "reloading", "activating")
_OFF = ("disabled", "", "enabled-runtime", "indirect", "linked", "linked-runtime", "bad")
_ON = ("enabled", "enabled-runtime", "linked", "linked-runtime")


def plan_unit(context: Context, setting: Setting) -> Step:
    name = info.unit_name(setting["name"])
    properties = context.unit(name)
    if not _there(context, name, properties):
        if setting.get("optional"):
            return same("absent", "is optional")
        if not context.check_mode:
            raise SettingError(f"unit {name} does not exist")
    actions = file_actions(properties, setting)
    reasons = [f"is to be {verb}d" if verb.endswith("e") else f"is to be {verb}ed" for verb in actions]
    run, reason = run_action(context, setting, properties)
    if run and not context.host.systemd_runs:
        context.warn("systemd does not run here: services are enabled and masked, but not started or stopped")
        run = None
    if run and run != "wait":
        actions.append(run)
        reasons.append(reason)
    before = _state(properties)
    if actions:
        after = " ".join([before] + ["→"] + actions)
        return Step(True, before, after, "; ".join(reasons), lambda: _apply(context, name, setting, actions))
    check = (lambda: _wait(context, name, setting)) if run == "wait" and patience(setting) else None
    return Step(False, before, before, reason, check=check)


def _there(context: Context, name: str, properties: Mapping[str, str]) -> bool:
    if properties.get("LoadState") not in (None, "not-found"):
        return True
    template = name.partition("@")[0] + "@." + name.rpartition(".")[2] if "@" in name else name
    return any(context.paths.get(folder + file) for folder in SYSTEMD_FOLDERS for file in (name, template))


def _state(properties: Mapping[str, str]) -> str:
    words = (properties.get("UnitFileState"), properties.get("ActiveState"))
    return " ".join(word for word in words if word) or "absent"


def file_actions(properties: Mapping[str, str], setting: Setting) -> list[str]:
    """What is to be done about the unit's links: a list of systemctl verbs. Pure."""
    state, actions = properties.get("UnitFileState", ""), []
    masked = state.startswith("masked")
    if setting.get("masked") is False and masked:
        actions.append("unmask")
    if setting.get("enabled") is True and (state in _OFF or "unmask" in actions):
        actions.append("enable")
    if setting.get("enabled") is False and state in _ON:
        actions.append("disable")
    if setting.get("masked") is True and not masked:
        actions.append("mask")
    return actions


def run_action(context: Context, setting: Setting, properties: Mapping[str, str]) -> tuple[str | None, str]:
    """start, stop, restart, reload, wait (it is on its way) or None, and why."""
    who, state = setting["id"], setting.get("state")
    active = properties.get("ActiveState", "inactive")
    restart = context.heard(who, setting.get("restart_on") or ())
    reload = context.heard(who, setting.get("reload_on") or ())
    if state == "stopped":
        return ("stop", "is running") if active in _RUNNING else (None, "")
    why = ", ".join(restart or reload) + " changed"
    if active in _RUNNING or (state != "started" and active == "failed"):
        if restart:
            return "restart", why
        if reload and active != "failed":
            return ("reload", why) if active == "active" else ("restart", why)
        return ("wait", "") if state == "started" and active == "activating" else (None, "")
    if state != "started":
        return None, ""
    unmet = properties.get("ConditionResult") == "no" and properties.get("ConditionTimestampMonotonic") not in ("0", "")
    if active == "inactive" and unmet and not restart and not reload:
        return None, "waits for its conditions"
    return "start", "is " + active


def _apply(context: Context, name: str, setting: Setting, actions: list[str]) -> None:
    if context.unit(name).get("NeedDaemonReload") == "yes":
        context.reload_owed = True
    context.reload()
    wait = patience(setting, context.unit(name, fresh=context.host.systemd_runs))
    for verb in actions:
        runs = verb in ("start", "restart", "reload")
        argv = ["systemctl"] + (["--no-block"] if runs and not wait else []) + [verb, "--", name]
        done = context.host.run(argv, wait if runs and wait else 120)
        if done.code:
            said = f"{tail(done, 5)}; its last lines: {journal(context.host, name)}"
            raise SettingError(f"unit {name}: {verb} failed: {said}")
        if runs and wait:
            _wait(context, name, setting)


def patience(setting: Setting, properties: Mapping[str, str] | None = None) -> float:
    """Seconds until the unit must be active, by itself its own limit; 0 means that another one looks after that."""
    if setting.get("wait") is not None:
        return setting["wait"]
    own = _seconds((properties or {}).get("TimeoutStartUSec") or "")
    return WAIT if own is None else min(_LONGEST_WAIT, max(WAIT, own + _LATER))


def _seconds(text: str) -> float | None:
    """A span as systemctl shows it, such as `1min 30s`; None for none, endless for `infinity` and days. Pure."""
    if text == "infinity":
        return _LONGEST_WAIT
    parts = [_SPAN.fullmatch(word) for word in text.split()]
    if not parts or None in parts:
        return None
    return sum(int(part[1]) * _SECONDS.get(part[2], _LONGEST_WAIT) for part in parts if part)


def _wait(context: Context, name: str, setting: Setting) -> None:
    """Wait until the unit is active and stays so; raises SettingError with its last lines."""
    began = time.monotonic()
    settled, invocation = None, None
    while True:
        properties = context.unit(name, fresh=True)
        active = properties.get("ActiveState")
        if active == "active":
            if properties.get("Type") not in ("simple", "exec", "idle"):
                return
            if settled is None or properties.get("InvocationID") != invocation:
                # the first look, or it has ended and was started again in between
                settled, invocation = time.monotonic() + _SETTLE, properties.get("InvocationID")
            if time.monotonic() >= settled:
                return
        elif active == "inactive" and _may_end(properties):
            return
        elif active in ("inactive", "failed"):
            raise _stopped(context.host, name, properties)
        # one that ended and is started again has used its own limit up
        limit = patience(setting, None if properties.get("SubState") == "auto-restart" else properties)
        if time.monotonic() > began + limit + _SETTLE:
            raise _stopped(context.host, name, properties)
        time.sleep(0.2)


def _may_end(properties: Mapping[str, str]) -> bool:
    """Whether being inactive is no failure: its conditions are not met yet, or it has done its work."""
    return properties.get("ConditionResult") == "no" or properties.get("Type") == "oneshot"


def _stopped(host: Host, name: str, properties: Mapping[str, str]) -> SettingError:
    active, sub, result = (properties.get(key, "?") for key in ("ActiveState", "SubState", "Result"))
    return SettingError(f"unit {name} is {active} ({sub}, result {result}): {journal(host, name)}")


def journal(host: Host, name: str) -> str:
    """The last lines of a unit's journal."""
    done = host.run(["journalctl", "--no-pager", "--quiet", "--output=cat", "--lines=20", "--unit=" + name], 30)
    return done.out.strip() or "(nothing in the journal)"
