#!/bin/sh
# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
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

# a unit that an administrator stopped stays stopped; "failed" and "activating" are not intended
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
