#!/bin/sh
# Copyright (c) 2026 kubenode.provision authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause
# First boot of a node: fetches the program `provision`, proves its digest, runs it until it has succeeded.
# Everything it needs lies beside it; running it again is harmless. Exit codes: 0 done, 1 failed, 2 wrong inputs.
set -u
umask 077
folder=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1

say() { echo "kubenode-setup: $*"; }

forget_secrets() { rm -f -- "$folder/token" "$folder/vars.json" "$folder/settings"; }

chmod 0700 "$folder"
if [ -f "$folder/done" ] && [ "$(cat "$folder/id")" = "$(cat "$folder/done")" ]; then
    say "this machine is set up already"
    forget_secrets
    exit 0
fi
url='' sha256='' python_url='' python_sha256='' source_ca='' attempts=1 pause=1 programs='' python_home=''
# gives them their values, exports the proxies, defines provision_options
# shellcheck source=/dev/null
. "$folder/settings" || exit 2

fits() { command -v "$1" >/dev/null 2>&1 && "$1" -I -c 'import sys, lzma, ssl; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; }

find_python() {
    for python in "$python_home/bin/python3" python3 python3.14 python3.13 python3.12 python3.11; do
        fits "$python" && return 0
    done
    return 1
}

# the URL goes by standard input: it may carry a credential, which the process list would show
fetch() {
    fetch_url=$1 fetch_file=$2
    set --
    if command -v curl >/dev/null 2>&1; then
        [ -z "$source_ca" ] || set -- --cacert "$folder/source-ca.crt"
        printf 'url = "%s"\n' "$fetch_url" | curl --config - --fail --silent --show-error --location \
            --connect-timeout 20 --speed-limit 1000 --speed-time 60 --output "$fetch_file" "$@"
    elif command -v wget >/dev/null 2>&1; then
        [ -z "$source_ca" ] || set -- --ca-certificate="$folder/source-ca.crt"
        printf '%s\n' "$fetch_url" | wget --quiet --timeout=60 --tries=1 --output-document="$fetch_file" "$@" --input-file=-
    else
        [ -z "$source_ca" ] || set -- "$folder/source-ca.crt"
        find_python && printf '%s' "$fetch_url" | "$python" -I -c '
import shutil, ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2] if len(sys.argv) > 2 else None)
with urllib.request.urlopen(sys.stdin.read(), timeout=60, context=context) as reply, open(sys.argv[1], "wb") as target:
    shutil.copyfileobj(reply, target)' "$fetch_file" "$@" 2>/dev/null
    fi
}

is_whole() { printf '%s  %s\n' "$1" "$2" | sha256sum -c - >/dev/null 2>&1; }

# fetch_verified WHAT URL SHA256 FILE: the file is there with this digest, or it is not there
fetch_verified() {
    is_whole "$3" "$4" && return 0
    say "fetching $1"
    draft=$4.draft.$$
    if ! fetch "$2" "$draft"; then
        say "fetching $1 failed"
    elif ! is_whole "$3" "$draft"; then
        say "$1 has another SHA-256 than the expected $3: $(sha256sum <"$draft" | cut -d ' ' -f 1)"
    elif mv -f -- "$draft" "$4"; then
        return 0
    fi
    rm -f -- "$draft"
    return 1
}

unpack_python() {
    fetch_verified Python "$python_url" "$python_sha256" "$programs/python.tar.gz" || return 1
    unpacked=$python_home.draft.$$
    mkdir -p -- "$unpacked" && tar -xzf "$programs/python.tar.gz" -C "$unpacked" --strip-components=1 || return 1
    # what is there does not fit, but need not be ours
    if [ -e "$python_home" ] || [ -L "$python_home" ]; then
        kept=$python_home.replaced
        while [ -e "$kept" ] || [ -L "$kept" ]; do kept=$kept.1; done
        mv -T -- "$python_home" "$kept" || return 1
    fi
    chmod 0755 "$unpacked" && mv -T -- "$unpacked" "$python_home" && rm -f -- "$programs/python.tar.gz"
}

# the first package that brings a Python which fits; which ones a system knows is its own business
install_python() {
    if command -v apt-get >/dev/null 2>&1; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq -o DPkg::Lock::Timeout=300 update </dev/null
        install='apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends'
    elif command -v dnf >/dev/null 2>&1; then
        install='dnf -q -y install'
    else
        say "no package manager for Python is known here; give python_source"
        return 1
    fi
    for package in python3 python3.12 python3.11 python3.13 python3.14; do
        say "installing $package"
        $install "$package" </dev/null >/dev/null 2>&1 && find_python && return 0
    done
    return 1
}

provide_python() {
    find_python && return 0
    if [ -n "$python_url" ]; then unpack_python; else install_python; fi
    find_python || { say "no Python 3.11 to 3.14 here" && return 1; }
}

try() {
    mkdir -p -- "$programs" || return 1
    provide_python || return 1
    program=$programs/provision-$sha256
    fetch_verified provision "$url" "$sha256" "$program" || return 1
    chmod 0700 "$program"
    for older in "$programs"/provision-*; do
        [ "$older" = "$program" ] || rm -f -- "$older"
    done
    say "running provision"
    # provision_options calls what it is given with the options behind it
    provision_options "$python" -I "$program" </dev/null
}

attempt=1
while :; do
    try
    code=$?
    [ "$code" -ne 0 ] || break
    if [ "$code" -eq 2 ]; then
        say "the inputs are wrong, trying again will not help"
        exit 2
    fi
    if [ "$attempt" -ge "$attempts" ]; then
        say "failed after $attempt attempts; to try again: sh $folder/setup.sh"
        exit 1
    fi
    say "attempt $attempt of $attempts failed, the next one begins in $pause s"
    sleep "$pause"
    attempt=$((attempt + 1)) pause=$((pause * 2))
    [ "$pause" -le 300 ] || pause=300
done
cp -- "$folder/id" "$folder/done"
forget_secrets
say "done"
