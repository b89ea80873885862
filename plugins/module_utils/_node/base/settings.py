# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Every step of base as a list of settings."""

from __future__ import annotations

from . import facts, health, hostcare, kernel, kubelet, packages, parts, repositories, runtime, trust
from .inputs import STEPS, managed


def _updates(node, inputs):
    result = hostcare.updates(node, inputs)
    held = packages.held(node, inputs)
    if held:
        result.append(parts.setting("hold", "updates/hold", packages=held, held=True))
    return result


_MAKERS = {
    "packages": repositories.files,
    "kernel": kernel.kernel,
    "swap": kernel.swap,
    "ca": trust.ca,
    "proxy": trust.proxy,
    "selinux": hostcare.selinux,
    "firewall": hostcare.firewall,
    "time": hostcare.time,
    "journald": hostcare.journald,
    "shutdown": hostcare.shutdown,
    "updates": _updates,
    "cni": kubelet.cni,
    "runtime": runtime.runtime,
    "kubelet": kubelet.kubelet,
    "health": health.health,
    "facts": facts.facts,
}


def settings(node, inputs, steps=None):
    """The settings of these steps, of every managed one when none is named; always in the one order that works.

    Settings with a secret carry only its name (``content_secret``); see secrets().
    """
    if steps is None:
        wanted = managed(inputs)
    else:
        wanted = [steps] if isinstance(steps, str) else list(steps)
        unknown = [step for step in wanted if step not in _MAKERS and step != "preflight"]
        if unknown:
            raise ValueError("step %r is unknown; there are %s" % (unknown[0], ", ".join(STEPS)))
    return [item for step in STEPS if step in wanted for item in _MAKERS[step](node, inputs)]


def secrets(node, inputs):
    """Name → content of the secret files of every managed step."""
    return {item["content_secret"]: item.hidden for item in settings(node, inputs) if item.hidden is not None}
