# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Checks all settings before any of them is looked at on the machine, plans them, then applies them in their order."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ..._common.names import machine_error
from .. import info
from ..host import RELOAD, Pending, module_error, package_error, path_error, sysctl_error, unit_error
from . import files, system, units
from .context import Context, Setting, SettingError, Step

_MODE = re.compile(r"0[0-7]{3}")
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?/(tcp|udp|sctp)")
_OWNER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?")
_LINE = re.compile(r"[^\x00-\x1f\x7f]+")


#: what is wrong with a value; None when nothing is
Check = Callable[[Any], Optional[str]]


class Field(NamedTuple):
    """A field's check, and whether it must be there."""

    check: Check
    required: bool


def _is(kind: Any, what: str) -> Check:
    return lambda value: None if isinstance(value, kind) else "must be " + what


def _matches(pattern: re.Pattern[str], what: str) -> Check:
    return lambda value: None if isinstance(value, str) and pattern.fullmatch(value) else "must be " + what


def _one_of(*choices: Any) -> Check:
    shown = ", ".join("null" if choice is None else str(choice) for choice in choices)
    return lambda value: None if value in choices else "must be one of " + shown


def _each(check: Check, least: int = 0) -> Check:
    def check_all(value: Any) -> str | None:
        if not isinstance(value, (list, tuple)) or len(value) < least:
            return "must be a list" + (" that is not empty" if least else "")
        errors = [check(item) for item in value]
        return next((f"has {item!r}, which {error}" for item, error in zip(value, errors) if error), None)

    return check_all


def _values(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "must be a dictionary"
    for key, item in value.items():
        if sysctl_error(key):
            return f"has {key!r}, which is not the name of a sysctl"
        if isinstance(item, bool) or not isinstance(item, (str, int)) or not _LINE.fullmatch(str(item)):
            return f"has for {key} a value that is neither a number nor a line of text"
    return None


def _base64(value: Any) -> str | None:
    try:
        base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return "must be base64"
    return None


def _port(value: Any) -> str | None:
    match = _PORT.fullmatch(value) if isinstance(value, str) else None
    if not match:
        return "must look like 10250/tcp or 30000-32767/udp"
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    return None if 1 <= first <= last <= 65535 else "is not a range of ports"


def _seconds(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3600
    return None if good else "must be a number of seconds from 0 to 3600"


_text = _is(str, "text")
_flag = _is(bool, "true or false")
_line = _matches(_LINE, "one line of text")
_ids = _each(_line)


def _host_name(value: Any) -> str | None:
    error = machine_error(value)
    return None if error is None else f"is {value!r}: {error}"


def _must(check: Check) -> Field:
    return Field(check, True)


def _may(check: Check) -> Field:
    return Field(check, False)


_owned = {
    "path": _must(path_error),
    "mode": _may(_matches(_MODE, 'an octal number in quotes, such as "0644"')),
    "owner": _may(_matches(_OWNER, "the name of a user")),
    "group": _may(_matches(_OWNER, "the name of a group")),
}

#: kind → field → check
KINDS = {
    "file": dict(
        _owned,
        content=_may(_text),
        content_b64=_may(_base64),
        content_secret=_may(_line),
        secret=_may(_flag),
        validate=_may(_each(_line, 1)),
        create_only=_may(_flag),
    ),
    "directory": _owned,
    "link": {"path": _must(path_error), "target": _must(_line)},
    "absent": {
        "path": _must(path_error),
        "recursive": _may(_flag),
        "shown": _may(_flag),
        "keep_full": _may(_flag),
        "begins": _may(_text),
    },
    "module": {"name": _must(module_error), "optional": _may(_flag)},
    "sysctl": {"values": _must(_values), "optional": _may(_each(sysctl_error))},
    "swap": {"mode": _must(_one_of("off", "limited", "keep"))},
    "unit": {
        "name": _must(unit_error),
        "enabled": _may(_one_of(True, False, None)),
        "masked": _may(_one_of(True, False, None)),
        "state": _may(_one_of("started", "stopped", "restarted_on", None)),
        "restart_on": _may(_ids),
        "reload_on": _may(_ids),
        "wait": _may(_seconds),
        "optional": _may(_flag),
    },
    "handler": {"argv": _must(_each(_line, 1)), "on": _must(_each(_line, 1))},
    "hold": {"packages": _must(_each(package_error)), "held": _must(_flag)},
    "selinux": {"mode": _must(_one_of("enforcing", "permissive"))},
    "firewall": {"ports": _must(_each(_port))},
    "hostname": {"name": _must(_host_name)},
}
_CONTENTS = ("content", "content_b64", "content_secret")
_COMMON = {"id": _must(_line), "step": _must(_line), "kind": _must(_line)}


def setting_errors(settings: Sequence[Any]) -> list[str]:
    """One line for everything that is wrong; each names the setting, the field and what it must be."""
    found: list[str] = []
    seen: dict[str, int] = {}
    paths: dict[str, str] = {}
    for index, setting in enumerate(settings):
        name = f"settings[{index}]"
        if not isinstance(setting, dict):
            found.append(f"{name} must be a dictionary")
            continue
        if isinstance(setting.get("id"), str):
            name = setting["id"]
            if name in seen:
                found.append(f"{name}: this id occurs twice")
            seen.setdefault(name, index)
        found += [f"{name}: {error}" for error in _setting_errors(setting)]
        if setting.get("kind") in ("file", "link", "directory") and isinstance(setting.get("path"), str):
            if setting["path"] in paths:
                found.append(f"{name}: {setting['path']} is already the path of {paths[setting['path']]}")
            paths.setdefault(setting["path"], name)
    return found or _order_errors(settings, seen)


def _setting_errors(setting: Mapping[str, Any]) -> list[str]:
    kind = setting.get("kind")
    fields = KINDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return [f"kind is {kind!r}; it must be one of {', '.join(sorted(KINDS))}"]
    fields = dict(fields, **_COMMON)
    found = [f"there is no field {field} for the kind {setting['kind']}" for field in set(setting) - set(fields)]
    for field, rule in fields.items():
        value = setting.get(field)
        if value is None and (field not in setting or not rule.required):
            if rule.required:
                found.append(f"{field} is missing")
            continue
        error = rule.check(value)
        if error:
            found.append(f"{field} {error}")
    return found or _together(setting)


def _together(setting: Mapping[str, Any]) -> list[str]:
    kind, found = setting["kind"], []
    if kind == "file" and sum(setting.get(field) is not None for field in _CONTENTS) != 1:
        found.append(f"exactly one of {', '.join(_CONTENTS)} must be given")
    if kind == "file" and setting.get("validate") and not any("%s" in word for word in setting["validate"]):
        found.append('validate must have "%s" where the path of the new content belongs')
    if kind == "absent" and setting.get("recursive") and not files.tree_allowed(setting["path"]):
        found.append(f"trees are removed only at or below {', '.join(files.TREES)}, and below /run")
    if kind == "unit" and setting.get("masked") and (setting.get("enabled") or setting.get("state") == "started"):
        found.append("a masked unit can be neither enabled nor started")
    return found


def listens(setting: Mapping[str, Any]) -> list[str]:
    """The ids that a unit or a handler waits for."""
    return [key for field in ("on", "restart_on", "reload_on") for key in setting.get(field) or ()]


def _order_errors(settings: Sequence[Any], seen: Mapping[str, int]) -> list[str]:
    found = []
    for index, setting in enumerate(settings):
        late = [key for key in listens(setting) if seen.get(key, -1) >= index]
        found += [f"{setting['id']}: it waits for {key}, which does not come before it" for key in late]
    return found


MASK = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
_SECRET_FIELDS = ("content", "content_b64")
#: Shorter ones would hide innocent words everywhere, and are shown nowhere anyway.
_SHORTEST = 6


def secret_values(settings: Sequence[Any]) -> set[str]:
    """The texts that must not appear in any output: the content of secret files, as given and decoded."""
    found: set[str] = set()
    for setting in settings:
        if not setting.get("secret"):
            continue
        for field in _SECRET_FIELDS:
            value = setting.get(field)
            if isinstance(value, str) and value.strip():
                found.update((value, value.strip()))
        try:
            decoded = base64.b64decode(setting.get("content_b64") or "", validate=True).decode("utf-8").strip()
        except (ValueError, TypeError):
            continue
        if decoded:
            found.add(decoded)
    return {value for value in found if len(value) >= _SHORTEST}


def with_secrets(settings: Sequence[Any], secrets: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
    """The settings with the content that ``content_secret`` names, and errors for names that are not there."""
    found, errors = [], []
    for setting in settings:
        name = setting.get("content_secret")
        if name is not None and isinstance(secrets.get(name), str):
            setting = dict(setting, content=secrets[name], secret=True)
            del setting["content_secret"]
        elif name is not None:
            errors.append(f"{setting.get('id')}: content_secret names {name!r}, which is no text in secrets")
        found.append(setting)
    return found, errors


def masked(settings: Sequence[Any]) -> list[Any]:
    """The settings as an invocation may show them."""
    return [
        dict(setting, **{field: MASK for field in _SECRET_FIELDS if setting.get(field)})
        if setting.get("secret")
        else setting
        for setting in settings
    ]


_PLANNERS = {
    "file": files.plan_file,
    "directory": files.plan_directory,
    "link": files.plan_link,
    "absent": files.plan_absent,
    "module": system.plan_module,
    "sysctl": system.plan_sysctl,
    "swap": system.plan_swap,
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
            errors.append(f"setting {setting['id']}: {error}")
            continue
        if step.changed and step.heard:
            context.changed.add(setting["id"])
        planned.append(Planned(setting, step, context.heard(setting["id"], listens(setting))))
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
    waited = {key for setting in settings for key in listens(setting)}
    context.reload_owed = RELOAD in pending.ids()
    if context.reload_comes:
        pending.add([RELOAD])
    # what another task changed is remembered from here on
    pending.add(sorted((context.changed & waited) - {item.setting["id"] for item in planned}))
    for item in planned:
        setting, step = item.setting, item.step
        begin = clock()
        try:
            if step.changed and step.heard and setting["id"] in waited:
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
            header = f"{item.setting['id']} ({item.step.reason})"
            plain = {
                "before_header": header,
                "after_header": header,
                "before": f"{item.step.before}\n",
                "after": f"{item.step.after}\n",
            }
            found.append(item.step.diff or plain)
    return found


def _failure(setting: Setting, error: Exception, results: list[dict[str, Any]]) -> str:
    changed = [entry["id"] for entry in results if entry["changed"]]
    text = f"setting {setting['id']} ({setting['kind']}) failed: {error}"
    return f"{text}. Applied before it: {', '.join(changed) or 'nothing'}. A rerun goes on from here"


def _forget(pending: Pending, settings: Sequence[Setting]) -> None:
    """Drop the changes that every unit and handler that waits for them has taken over."""
    mine = {setting["id"] for setting in settings}
    for key in pending.ids():
        waiting = [setting["id"] for setting in settings if key in listens(setting)]
        if (waiting or key in mine) and all(key not in pending.ids(who) for who in waiting):
            pending.drop([key])
