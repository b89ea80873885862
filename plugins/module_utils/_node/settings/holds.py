# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Packages that stay at their version."""

from __future__ import annotations

from ..info import gather, packages
from .files import tail
from .plan import SettingError, Step, same


def plan_hold(context, setting):
    """apt-mark hold, or dnf versionlock."""
    host, held = context.host, setting["held"]
    manager = gather.package_manager(host)
    if manager == "none" or not setting["packages"]:
        return same("nothing to hold")
    now = _held(host, manager)
    different = [name for name in setting["packages"] if (name in now) != held]
    before = "held: " + (", ".join(sorted(now & set(setting["packages"]))) or "none")
    if not different:
        return same(before)

    def act():
        if manager == "apt":
            argv = ["apt-mark", "hold" if held else "unhold", "--"] + different
        else:
            argv = [host.find("dnf") or "dnf5", "versionlock", "add" if held else "delete"] + different
        done = host.run(argv, 180)
        if done.code:
            missing = "" if manager == "apt" else "; dnf needs its versionlock plugin"
            raise SettingError("%s failed%s: %s" % (" ".join(argv), missing, tail(done)))

    reason = "%s %s held" % (", ".join(different), "is not" if held else "is")
    after = set(now & set(setting["packages"])) | set(different) if held else set()
    return Step(True, before, "held: " + (", ".join(sorted(after)) or "none"), reason, act)


def _held(host, manager):
    if manager == "dnf":
        return {name for path in gather.VERSIONLOCKS for name in packages.versionlock(host.text(path))}
    done = host.run(["apt-mark", "showhold"], 60)
    if done.code:
        raise SettingError("apt-mark showhold failed: %s" % tail(done))
    return set(done.out.split())
