# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kernel modules and sysctl values of the running kernel; their files are settings of the kind file."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from ..info import parse
from ..machine.host import Host
from .context import Context, Setting, SettingError, Step, same
from .files import tail

_SHARED = "this is a container, which shares its kernel: modules and sysctls are left as they are"
_FIXED = "/proc/sys is read-only: sysctls are left as they are"


def plan_module(context: Context, setting: Setting) -> Step:
    """A kernel module that is loaded or built in."""
    name = setting["name"]
    state = context.module(name)
    if state in ("loaded", "builtin"):
        return same(state)
    if context.container:
        context.warn(_SHARED)
        return same(state, "in a container")
    if state == "missing":
        if setting.get("optional"):
            return same(state, "is optional")
        raise SettingError(
            "the running kernel %s has no module %s; install the kernel's modules (%s), or reboot into the kernel that"
            " is installed" % (os.uname().release, name, _package(os.uname().release))
        )

    def act() -> None:
        done = context.host.run(["modprobe", "--", name], 60)
        if done.code:
            raise SettingError("module %s cannot be loaded: %s" % (name, tail(done)))

    context.changed.add("module:" + name)
    return Step(True, state, "loaded", "is not loaded", act)


def _package(release: str) -> str:
    """The package that brings the modules of a kernel which are not for every machine."""
    return "kernel-modules-extra-" + release if ".el" in release else "linux-modules-extra-%s on Ubuntu" % release


def plan_sysctl(context: Context, setting: Setting) -> Step:
    """Values of the running kernel."""
    host, optional = context.host, set(setting.get("optional") or ())
    wanted = {key: parse.sysctl_value(value) for key, value in setting["values"].items()}
    now = {key: parse.sysctl_value(host.text(parse.sysctl_path(key))) for key in wanted}
    different = {key: value for key, value in wanted.items() if value is not None and now[key] != value}
    missing = sorted(key for key in different if not host.exists(parse.sysctl_path(key)))
    # a module that is yet to be loaded may bring them
    coming = any(key.startswith("module:") for key in context.changed)
    before = _lines({key: now[key] for key in wanted if now[key] is not None})
    if not different or (set(missing) == set(different) <= optional and not coming):
        return same(before)
    if context.container:
        context.warn(_SHARED)
        return same(before, "in a container")
    if _read_only(host):
        context.warn(_FIXED)
        return same(before, "read-only")
    wrong = [key for key in missing if key not in optional]
    if wrong and not coming:
        raise SettingError("the running kernel has no sysctl %s" % ", ".join(wrong))

    def act() -> None:
        for key, value in different.items():
            _set(host, key, value, key in optional)

    shown = {key: value for key, value in different.items() if key not in missing or coming}
    diff = {
        "before_header": "sysctl",
        "after_header": "sysctl",
        "before": _lines({key: now[key] for key in shown if now[key] is not None}),
        "after": _lines(shown),
    }
    return Step(True, diff["before"], diff["after"], "%d of %d differ" % (len(shown), len(wanted)), act, diff=diff)


def _lines(values: Mapping[str, str | None]) -> str:
    return "".join("%s = %s\n" % pair for pair in sorted(values.items()))


def _read_only(host: Host) -> bool:
    try:
        return bool(os.statvfs(host.path("/proc/sys")).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _set(host: Host, key: str, value: str, optional: bool) -> None:
    try:
        with open(host.path(parse.sysctl_path(key)), "r+", encoding="utf-8") as file:
            file.write(value + "\n")
    except OSError as error:
        if error.errno == errno.ENOENT and optional:
            return
        raise SettingError("sysctl %s cannot be set to %s: %s" % (key, value, error.strerror)) from error
    now = parse.sysctl_value(host.text(parse.sysctl_path(key)))
    if now != value:
        raise SettingError("sysctl %s is %s after it was set to %s" % (key, now, value))
