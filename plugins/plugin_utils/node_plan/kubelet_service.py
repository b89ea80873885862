# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps cni, kubelet and health: folders, kubelet.service, and the probe of the container runtime."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._node.info.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import base_inputs, builders, runtime, templates, trust, versions
from .plan_types import BaseInputs
from .systems import bin_dir, known

_FOLDERS = (
    ("kubernetes", "/etc/kubernetes", "0755"),
    ("pki", "/etc/kubernetes/pki", "0755"),
    ("manifests", "/etc/kubernetes/manifests", "0755"),
    ("state", "/var/lib/kubelet", "0750"),
)
#: the first minor whose kubelet pings systemd's watchdog without a feature gate
_WATCHDOG_SINCE = (1, 32)


def cni(_node: Node, _inputs: BaseInputs) -> list[Setting]:
    """The folders that a network plugin's DaemonSet writes to."""
    return [
        builders.directory("cni/bin", runtime.CNI_BIN),
        builders.directory("cni/conf", runtime.CNI_CONF),
    ]


def kubelet_path(node: Node, inputs: BaseInputs) -> str:
    """Where the kubelet lies."""
    return ("/usr/bin" if inputs["kubelet_source"] == "repository" else bin_dir(node, inputs)) + "/kubelet"


def watchdog(inputs: BaseInputs) -> int:
    """Seconds of the watchdog, 0 for none."""
    if versions.release(inputs["kubernetes_version"])[:2] < _WATCHDOG_SINCE:
        return 0
    return base_inputs.seconds(inputs["kubelet_watchdog"]) or 0 if inputs["kubelet_watchdog"] else 0


PROBE = "kubenode-runtime-probe"


def kubelet(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Folders, unit, enabled; started by join. The unit waits until one of the two kubeconfigs is there."""
    result = [builders.directory("kubelet/dir-" + name, path, mode) for name, path, mode in _FOLDERS]
    text = templates.render(
        "base",
        "kubelet.service.j2",
        inputs,
        node=node,
        kubelet=kubelet_path(node, inputs),
        runtime_units=" ".join(runtime.units(inputs)),
        watchdog=watchdog(inputs),
    )
    path = builders.UNIT_DIR + "/kubelet.service"
    result.append(builders.file("kubelet/unit", path, text))
    restart = ["kubelet/unit", "proxy/kubelet", "artifact:kubelet", *trust.ids(inputs)]
    if inputs["kubelet_source"] == "repository":
        # kubeadm's package replaces ExecStart; the same name in /etc takes its drop-in away
        result.append(builders.link("kubelet/kubeadm-drop-in", path + ".d/10-kubeadm.conf", "/dev/null"))
        restart.append("kubelet/kubeadm-drop-in")
    drop_ins = builders.users_drop_ins("kubelet", "kubelet.service", node, inputs)
    result += drop_ins
    restart += [item["id"] for item in drop_ins]
    result.append(
        builders.unit("kubelet/kubelet-unit", "kubelet.service", enabled=True, masked=False, restart_on=restart)
    )
    return result


def health(node: Node, inputs: BaseInputs) -> list[Setting]:
    """The script, its service and its timer."""
    probe = inputs["runtime_probe"]
    script = known(node).lib_dir + "/runtime-probe"
    timeout = base_inputs.checked_seconds(probe["timeout"])
    words = [
        bin_dir(node, inputs) + "/crictl",
        "unix://" + runtime.socket(inputs),
        str(timeout),
        str(probe["threshold"]),
        *runtime.units(inputs),
    ]
    given = {
        "node": node,
        "name": PROBE,
        "script": script,
        "words": words,
        "runtime_units": " ".join(runtime.units(inputs)),
        "timeout": timeout,
        "interval": base_inputs.checked_seconds(probe["interval"]),
    }

    def rendered(template: str) -> str:
        return templates.render("base", template + ".j2", inputs, **given)

    service, timer = (f"{PROBE}.{kind}" for kind in ("service", "timer"))
    timer_drop_ins = builders.users_drop_ins("health", timer, node, inputs)
    return [
        builders.file("health/probe", script, rendered("runtime-probe.sh"), "0755"),
        builders.file("health/service", f"{builders.UNIT_DIR}/{service}", rendered(service)),
        builders.file("health/timer", f"{builders.UNIT_DIR}/{timer}", rendered(timer)),
        # the service is started by the timer again and again
        *builders.users_drop_ins("health", service, node, inputs),
        *timer_drop_ins,
        builders.unit(
            "health/timer-unit",
            timer,
            enabled=True,
            state="started",
            restart_on=["health/timer", *(item["id"] for item in timer_drop_ins)],
        ),
    ]
