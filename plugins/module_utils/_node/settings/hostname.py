# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's own name."""

from __future__ import annotations

import os

from ..machine import files
from .files import tail
from .plan import SettingError, Step, same

_FILE = "/etc/hostname"


def static_name(text):
    """The name in /etc/hostname; empty when there is none. Pure."""
    lines = (line.strip() for line in (text or "").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def plan_hostname(context, setting):
    """Now, and after the next boot."""
    host, name = context.host, setting["name"]
    now, later = os.uname().nodename, static_name(host.text(_FILE))
    if now == later == name:
        return same(name)

    def act():
        if later != name:
            files.write_file(host, _FILE, (name + "\n").encode("ascii"), 0o644)
            context.label([_FILE])
        if now != name:
            done = host.run(["hostname", "--", name], 30)
            if done.code:
                raise SettingError("the name %s cannot be set: %s" % (name, tail(done)))

    return Step(True, now if now == later else "%s, after a reboot %s" % (now, later or "none"), name, "differs", act)
