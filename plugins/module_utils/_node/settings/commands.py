# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Commands that must run when something has changed, such as update-ca-certificates."""

from __future__ import annotations

from .files import tail
from .plan import SettingError, Step, same

_LIMIT = 300


def plan_handler(context, setting):
    """A command that runs when one of the settings in ``on`` changed."""
    heard = context.heard(setting["id"], setting["on"])
    if not heard:
        return same("nothing to do")
    argv = list(setting["argv"])

    def act():
        context.reload()
        done = context.host.run(argv, _LIMIT)
        if done.code:
            raise SettingError("%s failed: %s" % (" ".join(argv), tail(done)))

    return Step(True, "due", "done: " + " ".join(argv), ", ".join(heard) + " changed", act)
