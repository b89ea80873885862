# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Step health: a timer that asks the runtime over CRI and restarts it after several failures in a row."""

from __future__ import annotations

from . import checks, parts, quoting, runtime
from .systems import bin_dir, known

NAME = "kubenode-runtime-probe"


def health(node, inputs):
    """The script, its service and its timer."""
    probe = inputs["runtime_probe"]
    script = known(node).lib_dir + "/runtime-probe"
    words = [
        bin_dir(node, inputs) + "/crictl",
        "unix://" + runtime.socket(inputs),
        str(checks.seconds(probe["timeout"])),
        str(probe["threshold"]),
        *runtime.units(inputs),
    ]
    service = _SERVICE % {
        "name": NAME,
        "command": " ".join([script] + [quoting.systemd_word(word) for word in words]),
        "after": " ".join(runtime.units(inputs)),
        # the probe itself, and a restart of the daemon
        "limit": checks.seconds(probe["timeout"]) + 120,
    }
    timer = _TIMER % {"interval": checks.seconds(probe["interval"])}
    return [
        parts.file("health/probe", script, SCRIPT, "0755"),
        parts.file("health/service", "%s/%s.service" % (parts.UNIT_DIR, NAME), parts.HEADER + service),
        parts.file("health/timer", "%s/%s.timer" % (parts.UNIT_DIR, NAME), parts.HEADER + timer),
        parts.unit("health/timer-unit", NAME + ".timer", enabled=True, state="started", restart_on=["health/timer"]),
    ]


_SERVICE = """\
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
_TIMER = """\
[Unit]
Description=Probe of the container runtime, every few seconds

[Timer]
OnActiveSec=%(interval)ds
OnUnitInactiveSec=%(interval)ds
AccuracySec=1s

[Install]
WantedBy=timers.target
"""

SCRIPT = r"""#!/bin/sh
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
