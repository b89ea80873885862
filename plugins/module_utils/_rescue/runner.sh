#!/bin/sh
# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs one image command in a rescue system, detached from the process that started it.
#
#   runner.sh start JOB LIMIT    start the command, or attach when JOB is running; answers as status does
#   runner.sh status [OFFSET [WAIT]]
#                                one header, then what the interleaved log holds from byte OFFSET on (base64); when the
#                                command is running, wait up to WAIT seconds for its end before answering
#   runner.sh fetch NAME         the file stdout, stderr or interleaved (gzip, base64)
#   runner.sh stop               end a running command: TERM, then KILL
#
# Everything lies below KUBENODE_BASE (default /root). State is replaced by rename, so a reader never sees half of it.
# The runner holds a lock while it lives; a state "running" without a held lock means that the runner was killed ("lost").

set -u
umask 077
case :${PATH-}: in *:/usr/sbin:*) ;; *) export PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin" ;; esac

base=${KUBENODE_BASE:-/root}
dir=$base/.kubenode
grace=${KUBENODE_GRACE:-10}
most=262144 # bytes of log in one answer
cap=$((${KUBENODE_CAP:-8388608} / 512 * 512)) # bytes kept of the beginning of each log; /root is in RAM
kept=65536 # bytes kept of the end of stdout and of stderr

clock() { # now, in hundredths of a second since boot; no fork, as it is asked for every line
    read -r uptime _ </proc/uptime
    now=$((${uptime%.*} * 100 + 1${uptime#*.} - 100)) # 0.08 is 8: a number that begins with 0 is octal
}

elapsed() { # seconds since the start, with two decimals
    clock
    hundredths=$(((now - began) % 100))
    case $hundredths in ?) hundredths=0$hundredths ;; esac
    elapsed=$(((now - began) / 100)).$hundredths
}

# --- the processes of the command ------------------------------------------------------------------------------------

cgroup_open() { # a cgroup of our own finds children that left the session, and outlives the SSH session's
    cgroup=
    for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
        [ -e "$root/cgroup.controllers" ] || continue
        mkdir -p "$root/kubenode-$id/runner" "$root/kubenode-$id/command" 2>/dev/null || continue
        cgroup=$root/kubenode-$id/command
        if { echo 0 >"$root/kubenode-$id/runner/cgroup.procs"; } 2>/dev/null; then return; fi
        cgroup_close
        cgroup=
    done
}

cgroup_close() {
    [ -n "$cgroup" ] || return 0
    { echo 0 >"${cgroup%/kubenode-*}/cgroup.procs"; } 2>/dev/null # out of our own, where that is allowed
    for try in 1 2 3 4 5 6 7 8 9; do # what was killed a moment ago may still be on its way out
        find "${cgroup%/command}" -depth -type d -exec rmdir {} \; 2>/dev/null
        [ -d "${cgroup%/command}" ] || break
        sleep "0.$try"
    done
}

add() { # PID: to what is found
    case $found in *" $1 "*) ;; *) found="$found$1 " left=$((left + 1)) ;; esac
}

look() { # into $found and $left: every live process of the command, by its cgroup, its session, or its mark in the environment
    found=' ' left=0 unclear=''
    if [ -n "$cgroup" ]; then
        # shellcheck disable=SC2044 # numbers, no names
        for pid in $(find "$cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null); do add "$pid"; done
    fi
    # shellcheck disable=SC2013
    for path in $(grep -l -F -e "KUBENODE_RUN=$id" /proc/[0-9]*/environ 2>/dev/null); do
        path=${path#/proc/}
        add "${path%/environ}"
    done
    [ -z "$cgroup" ] || return 0
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        # after the last ")" of the name: state, parent, process group, session; 21: memory, 24: code (1: not ours
        # to see), 49: the end of the environment
        # shellcheck disable=SC2086
        set -- ${line##*) }
        case $1 in Z | X) continue ;; esac
        [ -z "$session" ] || [ "$4" != "$session" ] || add "${line%% *}"
        [ "${21:-0}" = 0 ] || [ "${24:-1}" = 1 ] || [ "${49:-1}" != 0 ] || unclear=1
    done
}

gone() { # whether nothing of the command lives; else it is in $found
    look
    [ "$left" -eq 0 ] || return 1
    [ -z "$cgroup" ] || return 0
    # One look misses a process that forks at that moment, or becomes another program: its environment is empty then.
    looks=100 clear=0
    while [ "$clear" -lt 2 ] && [ "$looks" -gt 0 ]; do
        sleep 0.05
        look
        [ "$left" -eq 0 ] || return 1
        if [ -z "$unclear" ]; then clear=$((clear + 1)); else clear=0; fi
        looks=$((looks - 1))
    done
}

signal() { # NAME: to all that was found
    # shellcheck disable=SC2086
    kill -s "$1" $found 2>/dev/null
}

terminate() { # GRACE: TERM, after GRACE seconds KILL, until nothing is left; says in $left what could not be ended
    if gone; then return; fi
    signal TERM
    signal CONT # a stopped process takes its TERM only then
    clock
    until=$((now + $1 * 100))
    while clock && [ "$now" -lt "$until" ]; do
        if gone; then return; fi
        sleep 0.1
    done
    until=$((now + 1000)) # a process stuck in the kernel cannot be killed; do not wait for it for ever
    while clock && [ "$now" -lt "$until" ]; do
        if gone; then return; fi
        [ ! -w "$cgroup/cgroup.kill" ] || echo 1 >"$cgroup/cgroup.kill"
        signal KILL
        sleep 0.1
    done
    look
}

bury() { # a run whose runner was killed: what is left of the command, then the runner's helpers
    terminate "$grace"
    [ -n "$cgroup" ] || return 0
    for try in 1 2 3 4 5 6 7 8 9; do
        helpers=$(cat "${cgroup%/command}/runner/cgroup.procs") 2>/dev/null
        [ -n "$helpers" ] || break
        # shellcheck disable=SC2086
        kill -s KILL $helpers
        sleep "0.$try"
    done 2>/dev/null
    cgroup_close
}

# --- state -----------------------------------------------------------------------------------------------------------

blank() { # FILE BYTES: a file whose bytes are there already: they can be written when no more room is left
    head -c "$2" /dev/zero | tr '\000' '\n' >"$1"
}

save() { # STATE EXIT SECONDS MARKER LEFT
    # in place, over empty lines: the rename of what was written needs no room
    {
        echo "job=$job"
        echo "id=$id"
        echo "boot=$boot"
        echo "runner=$$"
        echo "session=$session"
        echo "cgroup=$cgroup"
        echo "began=$began"
        echo "limit=$limit"
        echo "state=$1"
        echo "exit=$2"
        echo "seconds=$3"
        echo "marker=$4"
        echo "left=$5"
    } 1<>"$dir/state.new"
    mv -f "$dir/state.new" "$dir/state"
    mv -f "$dir/state.spare" "$dir/state.new" 2>/dev/null
}

parse() { # the state file into variables; a state of an earlier boot is none
    job='' id='' boot='' runner='' session='' cgroup='' began=0 limit=0 state=none exit='' seconds=0 marker=0 left=0
    if [ -r "$dir/state" ]; then
        while IFS='=' read -r key value; do
            case $key in
            job) job=$value ;; id) id=$value ;; boot) boot=$value ;; runner) runner=$value ;; session) session=$value ;;
            cgroup) cgroup=$value ;; began) began=$value ;; limit) limit=$value ;; state) state=$value ;;
            exit) exit=$value ;; seconds) seconds=$value ;; marker) marker=$value ;; left) left=$value ;;
            esac
        done <"$dir/state"
    fi
    read -r this_boot </proc/sys/kernel/random/boot_id
    [ "$boot" = "$this_boot" ] || state=none
}

load() { # [WAIT]: the state as it is; a running one whose runner holds no lock any more is lost
    parse
    [ "$state" = running ] || return 0
    # the runner holds the lock exclusively until it is done
    if flock -s -w "${1:-0}" "$dir/lock" true 2>/dev/null; then
        seen=$id
        parse # it may have ended, or another one begun, between the two looks
        [ "$id" = "$seen" ] || { load 0 && return; }
        [ "$state" != running ] || state=lost
    fi
    if [ -z "$exit" ] && [ "$state" != none ]; then
        elapsed
        seconds=$elapsed
    fi
}

size() { # FILE
    if [ -e "$1" ]; then echo $(($(wc -c <"$1"))); else echo 0; fi
}

# --- the run ---------------------------------------------------------------------------------------------------------

said() { # the line in place of output that was left out
    echo "[kubenode: something is left out here; what follows are the last $kept bytes]"
}

recorder() { # WORDS: the program beside this one that records both streams in order
    exec python3 -I -S "$dir/recorder.py" "$@"
}

last_lines() { # NAME MARK: the end of a log that was cut, for the interleaved one
    [ ! -e "$dir/$1.cut" ] || { sed "s/^/$ended $2 /" "$dir/$1.last" && echo; }
}

watchdog() { # ends the command at its limit, also when the runner itself was killed
    called_off=
    trap 'called_off=1' TERM
    exec 9>&-
    sleep "$limit" &
    nap=$!
    # KILL, as a child that has not become sleep yet would swallow a TERM
    trap 'kill -s KILL "$nap"; wait "$nap"; exit 0' TERM
    [ -z "$called_off" ] || { kill -s KILL "$nap" && exit 0; }
    wait "$nap"
    trap '' TERM
    mv -f "$dir/armed.$id" "$dir/expired.$id"
    terminate "$grace"
}

settle() { # STATE EXIT: nothing of the command is left; close the logs, say how it ended
    elapsed
    ended=$elapsed
    tries=100 recorded=
    while [ "$tries" -gt 0 ] && kill -0 "$recorder" 2>/dev/null; do
        sleep 0.05
        before=$recorded # as long as something comes, a slow machine has its time
        recorded="$(size "$dir/stdout") $(size "$dir/stderr") $(size "$dir/interleaved")"
        if [ "$recorded" = "$before" ]; then tries=$((tries - 1)); else tries=100; fi
        case $tries in *5) terminate 2 ;; esac # what holds the pipes open may have been missed
    done
    kill "$recorder" 2>/dev/null
    wait "$recorder" 2>/dev/null # it writes the ends of the logs
    marker=0
    case $(cat "$dir/stdout" "$dir/stdout.last" | tail -c $((2 * kept)) | LC_ALL=C tr -d '\000' | LC_ALL=C grep '[^[:space:]]' | tail -n 1) in
    *IMAGE_URL_DONE*) marker=1 ;;
    esac
    { last_lines stdout out && last_lines stderr err; } >>"$dir/interleaved" 2>/dev/null
    rm -f "$dir/stdout.pipe" "$dir/stderr.pipe" "$dir/armed.$id" "$dir/expired.$id"
    save "$1" "$2" "$ended" "$marker" "$left"
    exec 9>&- # a process that waits for the end goes on now
}

run() { # JOB LIMIT BEFORE
    exec 9>>"$dir/lock"
    flock -w 60 9 || exit 75 # longer than a busy machine needs to say that it runs
    parse
    [ "$id" = "$3" ] || exit 0 # another start was quicker
    [ "$state" != running ] || state=lost # its runner does not hold the lock
    # Never two writers: what a killed runner left goes first.
    if [ "$state" = lost ]; then
        bury
        [ "$left" -eq 0 ] || { echo "runner: $left processes of an earlier run cannot be ended" >&2 && exit 75; }
    fi

    job=$1 limit=$2 session='' left=0
    clock
    began=$now
    id=$$.$began. # the last dot: no id is the beginning of another one
    read -r boot </proc/sys/kernel/random/boot_id
    trap cgroup_close EXIT # also where the command is not started
    cgroup_open
    cd "$dir" || exit 1
    rm -f stdout* stderr* interleaved state.new state.spare recording armed.* expired.* "$base/output.json"
    : >stdout && : >stderr && : >interleaved && : >"armed.$id" && : >stdout.whole && : >stderr.whole || exit 1
    mkfifo stdout.pipe stderr.pipe || exit 1
    command -v python3 >/dev/null || { echo "runner: python3 is missing in this rescue; install python3" >&2 && exit 1; }
    # the command may leave no room at once
    blank stdout.last "$kept" && blank stderr.last "$kept" && blank state.new 4096 && blank state.spare 4096 || exit 1
    { IFS= read -r image_url && IFS= read -r machine && IFS= read -r devices; } <arguments || exit 1
    OCI_REGISTRY_AUTH_TOKEN=$(cat token)
    export OCI_REGISTRY_AUTH_TOKEN
    rm -f token
    # the file beside the runner's state is for commands that lose their environment
    KUBENODE_INSTALLATION=$(cat installation 2>/dev/null)
    KUBENODE_CONSENT=$(cat consent 2>/dev/null)

    (
        exec 9>&- # the lock is the runner's alone
        recorder record "$dir" "$cap" "$kept" "$began"
    ) </dev/null >/dev/null &
    recorder=$!
    until [ -e recording ]; do # else the command would wait for ever for someone who reads what it prints
        kill -0 "$recorder" 2>/dev/null || { echo "runner: nothing records the command" >&2 && exit 1; }
        sleep 0.02
    done
    (
        exec 9>&-
        [ -z "$cgroup" ] || echo 0 >"$cgroup/cgroup.procs"
        cd "$base" || exit 126
        umask 022
        export KUBENODE_INSTALLATION KUBENODE_CONSENT
        recorder launch "${LC_CTYPE+=${LC_CTYPE-}}" env KUBENODE_RUN="$id" KUBENODE_LIMIT="$limit" setsid "$base/image-url-command" \
            "$image_url" "$base/bootstrap.data" "$machine" "$devices"
    ) </dev/null >stdout.pipe 2>stderr.pipe &
    command=$!
    session=$command # setsid does not fork here, so the command's process id is its session's
    unset OCI_REGISTRY_AUTH_TOKEN
    watchdog &
    guard=$!
    trap 'trap "" TERM INT HUP; kill "$guard" 2>/dev/null; terminate "$grace"; settle killed ""; exit 0' TERM INT HUP
    save running '' 0 0 0

    wait "$command"
    status=$?
    trap '' TERM INT HUP
    if [ -e "expired.$id" ]; then
        wait "$guard"
        terminate "$grace"
        settle timeout "$status"
    else
        kill "$guard" 2>/dev/null
        wait "$guard"
        terminate 2
        settle exited "$status"
    fi
}

# --- what the controller calls ---------------------------------------------------------------------------------------

start() { # JOB LIMIT
    load
    if [ "$state" = running ]; then
        [ "$job" = "$1" ] && status 0 && return
        echo "runner: another command is running (job $job); wait for it, or end it: sh $dir/runner.sh stop" >&2
        exit 75
    fi
    before=$id
    setsid sh "$dir/runner.sh" run "$1" "$2" "$before" </dev/null >/dev/null 2>"$dir/runner.log" &
    child=$!
    while kill -0 "$child" 2>/dev/null; do # it says that it runs, or ends
        load
        [ "$id" = "$before" ] || break
        sleep 0.05
    done
    load
    if [ "$id" = "$before" ]; then
        echo "runner: the command did not start: $(tail -n 3 "$dir/runner.log")" >&2
        exit 1
    fi
    status 0
}

sizes() { # the sizes of what a status tells, 0 where a file is not there; one process, as it is asked for all the time
    out=0 err=0 total=0 output='' ifs=$IFS
    IFS='
' # no here-document: some shells write one to a file, and there may be no room
    # shellcheck disable=SC2046
    for line in $(LC_ALL=C stat -c '%n=%s' "$dir/stdout" "$dir/stderr" "$dir/interleaved" "$base/output.json" 2>/dev/null); do
        case $line in
        */stdout=*) out=${line##*=} ;; */stderr=*) err=${line##*=} ;;
        */interleaved=*) total=${line##*=} ;; */output.json=*) output=${line##*=} ;;
        esac
    done
    IFS=$ifs
}

status() { # OFFSET [WAIT]
    load "${2:-0}"
    sizes
    offset=$1
    [ "$offset" -le "$total" ] || offset=0
    bytes=$((total - offset))
    [ "$bytes" -le "$most" ] || bytes=$most
    echo "kubenode-runner=1"
    echo "job=$job"
    echo "id=$id"
    echo "boot=$this_boot"
    echo "state=$state"
    echo "exit=$exit"
    echo "seconds=$seconds"
    echo "limit=$limit"
    echo "marker=$marker"
    echo "left=$left"
    echo "stdout=$out"
    echo "stderr=$err"
    echo "interleaved=$total"
    echo "offset=$offset"
    echo "bytes=$bytes"
    # a regular file only: a pipe would let us wait for ever
    if [ -f "$base/output.json" ] && [ -r "$base/output.json" ]; then
        echo "output_size=${output:-0}"
        printf 'output=' && head -c 65536 "$base/output.json" | base64 -w 0 && echo
    fi
    if [ "$bytes" -gt 0 ]; then
        printf 'log=' && tail -c "+$((offset + 1))" "$dir/interleaved" | head -c "$bytes" | base64 -w 0 && echo
    fi
    echo "end=1"
}

fetch() { # NAME
    case $1 in
    stdout | stderr)
        { cat "$dir/$1" && { [ ! -e "$dir/$1.cut" ] || { echo && said && cat "$dir/$1.last"; }; }; } | gzip -c | base64 &&
            echo "end=1"
        ;;
    interleaved) gzip -c "$dir/$1" | base64 && echo "end=1" ;;
    *) echo "runner: no such log: $1" >&2 && exit 64 ;;
    esac
}

stop() {
    load
    case $state in
    running)
        kill -s TERM "$runner"
        flock -w $((grace + 120)) "$dir/lock" true
        ;;
    lost) bury ;;
    esac
    status 0
}

case ${1-} in
start) start "$2" "$3" ;;
run) run "$2" "$3" "$4" ;;
status) status "${2:-0}" "${3:-0}" ;;
fetch) fetch "$2" ;;
stop) stop ;;
*) echo "usage: runner.sh start JOB LIMIT | status [OFFSET [WAIT]] | fetch NAME | stop" >&2 && exit 64 ;;
esac
