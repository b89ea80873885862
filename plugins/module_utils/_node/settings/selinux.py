# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""SELinux: enforcing or permissive, now and after the next boot."""

from __future__ import annotations

import re

from ..info import gather
from ..machine import files
from .files import tail
from .plan import SettingError, Step, same

_CONFIG = "/etc/selinux/config"
_LINE = re.compile(r"^[ \t]*SELINUX[ \t]*=[ \t]*(\S*)[ \t]*$", re.MULTILINE)


def configured(text):
    """The mode in /etc/selinux/config; None when it has none. Pure."""
    found = _LINE.findall(text or "")
    return found[-1] if found else None


def with_mode(text, mode):
    """The same file with another mode. Pure."""
    if configured(text) is None:
        return text + ("" if not text or text.endswith("\n") else "\n") + "SELINUX=%s\n" % mode
    return _LINE.sub("SELINUX=" + mode, text)


def plan_selinux(context, setting):
    """Where SELinux is off in this boot, only the next one can be prepared, and only towards permissive."""
    host, mode = context.host, setting["mode"]
    state, text = gather.selinux(host), host.text(_CONFIG)
    if state == "absent":
        return same(state)
    later = configured(text) if text is not None else None
    if state == "disabled":
        if mode == "enforcing":
            raise SettingError("SELinux is disabled in this boot; enable it, reboot, and try again")
        return same(state)
    before = "%s, after a reboot %s" % (state, later)
    write = text is not None and later != mode
    if state == mode and not write:
        return same(before)

    def act():
        if write:
            files.write_file(host, _CONFIG, with_mode(text, mode).encode("utf-8"), 0o644)
            context.label([_CONFIG])
        if state != mode:
            done = host.run(["setenforce", "1" if mode == "enforcing" else "0"], 60)
            if done.code:
                raise SettingError("setenforce failed: %s" % tail(done))

    return Step(True, before, "%s, after a reboot %s" % (mode, mode), "is %s" % before, act)
