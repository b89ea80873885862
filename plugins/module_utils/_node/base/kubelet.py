# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Steps cni and kubelet: folders, and a kubelet that waits until the machine has joined."""

from __future__ import annotations

from . import checks, containerd, parts, runtime, trust, versions
from .systems import bin_dir

_FOLDERS = (
    ("kubernetes", "/etc/kubernetes", "0755"),
    ("pki", "/etc/kubernetes/pki", "0755"),
    ("manifests", "/etc/kubernetes/manifests", "0755"),
    ("state", "/var/lib/kubelet", "0750"),
)
#: the first minor whose kubelet pings systemd's watchdog without a feature gate
_WATCHDOG_SINCE = (1, 32)


def cni(_node, _inputs):
    """The folders that a network plugin's DaemonSet writes to."""
    return [
        parts.directory("cni/bin", containerd.CNI_BIN),
        parts.directory("cni/conf", containerd.CNI_CONF),
    ]


def kubelet_path(node, inputs):
    """Where the kubelet lies."""
    return ("/usr/bin" if inputs["kubelet_source"] == "repository" else bin_dir(node, inputs)) + "/kubelet"


def watchdog(inputs):
    """Seconds of the watchdog, 0 for none."""
    if versions.numbers(inputs["kubernetes_version"])[:2] < _WATCHDOG_SINCE:
        return 0
    return checks.seconds(inputs["kubelet_watchdog"]) or 0 if inputs["kubelet_watchdog"] else 0


def unit(node, inputs):
    """kubelet.service: harmless until one of the two kubeconfigs is there."""
    seconds = watchdog(inputs)
    text = _UNIT % {
        "after": " ".join(runtime.units(inputs)),
        "kubelet": kubelet_path(node, inputs),
        # READY ends the start, so that a slow start is not taken for a hung kubelet
        "type": "notify" if seconds else "simple",
    }
    if seconds:
        text = text.replace("\n[Install]", _WATCHDOG % seconds + "\n[Install]")
    return text


def kubelet(node, inputs):
    """Folders, unit, enabled; started by join."""
    result = [parts.directory("kubelet/dir-" + name, path, mode) for name, path, mode in _FOLDERS]
    path = parts.UNIT_DIR + "/kubelet.service"
    result.append(parts.file("kubelet/unit", path, parts.HEADER + unit(node, inputs)))
    restart = ["kubelet/unit", "proxy/kubelet", "artifact:kubelet", *trust.ids(inputs)]
    if inputs["kubelet_source"] == "repository":
        # kubeadm's package replaces ExecStart; the same name in /etc takes its drop-in away
        result.append(parts.link("kubelet/kubeadm-drop-in", path + ".d/10-kubeadm.conf", "/dev/null"))
        restart.append("kubelet/kubeadm-drop-in")
    result.append(parts.unit("kubelet/kubelet-unit", "kubelet.service", enabled=True, masked=False, restart_on=restart))
    return result


_UNIT = """\
[Unit]
Description=kubelet, the Kubernetes node agent
Documentation=https://kubernetes.io/docs/
After=network-online.target %(after)s
Wants=network-online.target %(after)s
# waits here until the machine has joined, or is about to
ConditionPathExists=|/etc/kubernetes/kubelet.conf
ConditionPathExists=|/etc/kubernetes/bootstrap-kubelet.conf
StartLimitIntervalSec=0

[Service]
Type=%(type)s
Environment="KUBELET_ARGS=" "KUBELET_KUBEADM_ARGS="
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/kubernetes/kubelet.env
ExecStart=%(kubelet)s $KUBELET_ARGS $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=10
CPUAccounting=true
MemoryAccounting=true

[Install]
WantedBy=multi-user.target
"""
_WATCHDOG = """\
# the kubelet itself ends after five minutes without a certificate; this is for one that does nothing at all
TimeoutStartSec=10min
# the kubelet pings only while its own health checks pass; SIGABRT leaves its stacks in the journal
WatchdogSec=%ds
TimeoutAbortSec=15s
"""
