# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps cni, kubelet and health: folders, kubelet.service, and the probe of the container runtime."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._node.info.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.plan import Setting

from . import base_inputs, builders, containerd, formats, runtime, trust, versions
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
        builders.directory("cni/bin", containerd.CNI_BIN),
        builders.directory("cni/conf", containerd.CNI_CONF),
    ]


def kubelet_path(node: Node, inputs: BaseInputs) -> str:
    """Where the kubelet lies."""
    return ("/usr/bin" if inputs["kubelet_source"] == "repository" else bin_dir(node, inputs)) + "/kubelet"


def watchdog(inputs: BaseInputs) -> int:
    """Seconds of the watchdog, 0 for none."""
    if versions.release(inputs["kubernetes_version"])[:2] < _WATCHDOG_SINCE:
        return 0
    return base_inputs.seconds(inputs["kubelet_watchdog"]) or 0 if inputs["kubelet_watchdog"] else 0


def unit(node: Node, inputs: BaseInputs) -> str:
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


def kubelet(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Folders, unit, enabled; started by join."""
    result = [builders.directory("kubelet/dir-" + name, path, mode) for name, path, mode in _FOLDERS]
    path = builders.UNIT_DIR + "/kubelet.service"
    result.append(builders.file("kubelet/unit", path, builders.HEADER + unit(node, inputs)))
    restart = ["kubelet/unit", "proxy/kubelet", "artifact:kubelet", *trust.ids(inputs)]
    if inputs["kubelet_source"] == "repository":
        # kubeadm's package replaces ExecStart; the same name in /etc takes its drop-in away
        result.append(builders.link("kubelet/kubeadm-drop-in", path + ".d/10-kubeadm.conf", "/dev/null"))
        restart.append("kubelet/kubeadm-drop-in")
    result.append(
        builders.unit("kubelet/kubelet-unit", "kubelet.service", enabled=True, masked=False, restart_on=restart)
    )
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


PROBE = "kubenode-runtime-probe"


def health(node: Node, inputs: BaseInputs) -> list[Setting]:
    """The script, its service and its timer."""
    probe = inputs["runtime_probe"]
    script = known(node).lib_dir + "/runtime-probe"
    words = [
        bin_dir(node, inputs) + "/crictl",
        "unix://" + runtime.socket(inputs),
        str(base_inputs.checked_seconds(probe["timeout"])),
        str(probe["threshold"]),
        *runtime.units(inputs),
    ]
    service = _PROBE_SERVICE % {
        "name": PROBE,
        "command": " ".join([script] + [formats.systemd_word(word) for word in words]),
        "after": " ".join(runtime.units(inputs)),
        # the probe itself, and a restart of the daemon
        "limit": base_inputs.checked_seconds(probe["timeout"]) + 120,
    }
    timer = _PROBE_TIMER % {"interval": base_inputs.checked_seconds(probe["interval"])}
    return [
        builders.file("health/probe", script, PROBE_SCRIPT, "0755"),
        builders.file("health/service", "%s/%s.service" % (builders.UNIT_DIR, PROBE), builders.HEADER + service),
        builders.file("health/timer", "%s/%s.timer" % (builders.UNIT_DIR, PROBE), builders.HEADER + timer),
        builders.unit(
            "health/timer-unit", PROBE + ".timer", enabled=True, state="started", restart_on=["health/timer"]
        ),
    ]


_PROBE_SERVICE = """\
[Unit]
Description=Probe of the container runtime
After=%(after)s
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=%(command)s
# the count of failures outlives the single probe, and no reboot
RuntimeDirectory=%(name)s
RuntimeDirectoryPreserve=yes
TimeoutStartSec=%(limit)ds
# a start every few seconds is no news; what the probe finds is
LogLevelMax=notice
"""
_PROBE_TIMER = """\
[Unit]
Description=Probe of the container runtime, every few seconds

[Timer]
OnActiveSec=%(interval)ds
OnUnitInactiveSec=%(interval)ds
AccuracySec=1s

[Install]
WantedBy=timers.target
"""

PROBE_SCRIPT = r"""#!/bin/sh
# Written by kubenode.provision (base); changes are overwritten.
# Asks the container runtime for its status over CRI. After THRESHOLD failures in a row the daemons are killed and
# started again; containers live on. An answer within the limit, however slow, is no failure.
# usage: runtime-probe CRICTL ENDPOINT TIMEOUT_SECONDS THRESHOLD UNIT...
set -u

crictl=$1 endpoint=$2 limit=$3 threshold=$4
shift 4
state=$RUNTIME_DIRECTORY/failures

say() { printf '<%s>%s\n' "$1" "$2"; }

answers() {
    timeout --kill-after=5 "$limit" "$crictl" --runtime-endpoint "$endpoint" --image-endpoint "$endpoint" \
        --timeout "${limit}s" info >/dev/null 2>&1
}

# what somebody stopped on purpose stays stopped; "failed" and "activating" are nobody's wish
for unit in "$@"; do
    active=$(systemctl show --property=ActiveState --value "$unit")
    if [ "$active" = inactive ]; then
        [ -e "$state" ] && say 5 "$unit is stopped; not probing"
        rm -f "$state"
        exit 0
    fi
done

if answers; then
    [ -e "$state" ] && say 5 "the container runtime answers again"
    rm -f "$state"
    exit 0
fi

failures=$(cat "$state" 2>/dev/null)
case $failures in
    '' | *[!0-9]*) failures=0 ;;
esac
failures=$((failures + 1))
printf '%s\n' "$failures" >"$state"
say 4 "no answer from the container runtime within $limit s, $failures of $threshold"
[ "$failures" -lt "$threshold" ] && exit 0

for unit in "$@"; do
    say 3 "restarting $unit"
    # a hung daemon does not see SIGTERM; only the main process, since the shims of containers are in the same group
    systemctl kill --kill-who=main --signal=KILL "$unit" 2>/dev/null
    systemctl reset-failed "$unit" 2>/dev/null
    systemctl restart "$unit" || say 3 "$unit did not start"
done
rm -f "$state"
"""
