# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Collects the facts of a machine: files are read, and every program that is needed runs at the same time."""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._common import probe
from .._common.text import json_object
from . import facts
from .facts import Binary, File, Node
from .host import LATE, Host, module_error, package_error, path_error, program_error, sysctl_error, unit_error
from .node_artifacts import look_at_all

#: systemd's own rule: with an error of 16 s or more, no time service keeps the clock.
_UNSYNCHRONIZED = 16000000
#: struct timex of a 64-bit Linux: modes, padding, offset, freq, maxerror; it is 208 bytes long.
_HEAD = struct.Struct("@I4xqqq")


def ntp_synchronized() -> bool | None:
    """True or False by adjtimex(2); None when the kernel does not say, as in containers."""
    buffer = ctypes.create_string_buffer(512)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if ctypes.sizeof(ctypes.c_long) != 8 or libc.adjtimex(buffer) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return bool(_HEAD.unpack_from(buffer.raw)[3] < _UNSYNCHRONIZED)


_CHECKS = {
    "packages": package_error,
    "binaries": program_error,
    "units": unit_error,
    "files": path_error,
    "sysctls": sysctl_error,
    "modules": module_error,
}


def query_errors(params: Mapping[str, Any]) -> list[str]:
    """One line for each name that cannot be asked for."""
    found = []
    for option, check in _CHECKS.items():
        for name in params[option]:
            error = check(name)
            if error:
                found.append(f"{option}: {name!r} {error}")
    return found


class Queries(NamedTuple):
    """What to look at beyond the machine itself: names of each kind; candidates and artifacts as a whole."""

    packages: Sequence[str]
    candidates: bool
    binaries: Sequence[str]
    units: Sequence[str]
    files: Sequence[str]
    sysctls: Sequence[str]
    modules: Sequence[str]
    artifacts: bool = False


BASE = "/etc/kubenode/base.json"
FIREWALLS = ("firewalld", "ufw", "nftables")
TIME_SERVICES = ("systemd-timesyncd", "chronyd", "chrony", "ntpsec", "ntpd", "ntp", "openntpd")
_RESOLV = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/resolv.conf")
_DISKS = ("/", "/usr", "/etc", "/opt", "/var", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/log")
VERSIONLOCKS = (
    "/etc/dnf/plugins/versionlock.list",
    "/etc/yum/pluginconf.d/versionlock.list",
    "/etc/dnf/versionlock.toml",
)
#: The arguments that print the version of a program, where they are not --version.
_VERSION_WORDS = {"kubectl": ["version", "--client"], "kubeadm": ["version", "-o", "short"], "etcdctl": ["version"]}
_ROUTES = {"4": "1.0.0.0", "6": "2000::"}
_LIMIT = 120
#: Bytes of a file that is hashed; an image of a system would take seconds.
_MOST_HASHED = 64 << 20


def in_rescue(host: Host) -> bool:
    """Whether the provider's rescue runs, by the one rule for that; a folder that looks like its mark is no rescue."""
    lines = (host.text("/proc/self/mountinfo") or "").splitlines()
    root = [line for line in lines if line.split(" ")[4:5] == ["/"]]
    on_devices = [line for line in lines if " /dev/" in line.partition(" - ")[2]]
    marks = ["oldroot"] if host.is_dir("/root/.oldroot/nfs") else []
    marks += ["motd"] if "Hetzner Rescue System" in (host.text("/etc/motd") or "") else []
    place = probe.place_of("\n".join(root), "\n".join(on_devices))
    return probe.Origin(os.geteuid(), place, marks).is_rescue


class Late(Exception):
    """A program that was asked for its version did not answer; saying that it is not there would be wrong."""


def read(host: Host, queries: Queries) -> Node:
    """The facts as N1 of the collection describes them; changes nothing."""
    manager = package_manager(host)
    found = _programs(host, queries, manager)
    services = facts.units(found.get("units", ""), _unit_names(queries))
    installed, held = _packages(host, manager, found)
    memory = facts.memory_bytes(host.text("/proc/meminfo"))
    name = os.uname()
    return {
        "os": facts.os_release(host.text("/etc/os-release") or host.text("/usr/lib/os-release")),
        "arch": facts.ARCHITECTURES.get(name.machine, name.machine),
        "kernel": name.release,
        "systemd": facts.systemd_version(found.get("systemd")),
        "cgroup": 2 if host.exists("/sys/fs/cgroup/cgroup.controllers") else 1,
        "container": host.container,
        "virtualization": found.get("virtualization", "").strip() or "none",
        "python": platform.python_version(),
        "package_manager": manager,
        "read_only_usr": read_only(host, "/usr"),
        "selinux": selinux(host),
        "firewall": {unit: facts.service_state(services.get(unit + ".service", {})) for unit in FIREWALLS},
        "cpus": os.cpu_count() or 1,
        "memory_bytes": memory,
        "disk_free": _disk_free(host),
        "time": {
            "unix": time.time(),
            "ntp_synchronized": ntp_synchronized(),
            "services": {unit: facts.service_state(services.get(unit + ".service", {})) for unit in TIME_SERVICES},
        },
        "swaps": facts.swaps(host.text("/proc/swaps")),
        "machine_id": (host.text("/etc/machine-id") or "").strip(),
        "boot_id": (host.text("/proc/sys/kernel/random/boot_id") or "").strip(),
        "hostname": name.nodename,
        "uid": os.geteuid(),
        "in_rescue": in_rescue(host),
        "network": {
            "addresses": facts.addresses(found.get("addresses")),
            "default": {family: facts.route(found.get("route" + family)) for family in _ROUTES},
        },
        "resolv": {path: facts.nameservers(host.text(path)) for path in _RESOLV if host.text(path) is not None},
        "packages": {package: installed.get(package) for package in queries.packages},
        "candidates": _candidates(queries, manager, found),
        "held": sorted(held & set(queries.packages)),
        "binaries": {binary: _binary(host, binary, found) for binary in queries.binaries},
        "units": {unit: facts.unit_facts(services.get(unit_name(unit), {})) for unit in queries.units},
        "files": {path: file_facts(host, path) for path in queries.files},
        "sysctls": {key: facts.sysctl_value(host.text(facts.sysctl_path(key))) for key in queries.sysctls},
        "modules": kernel_modules(host, queries.modules),
        "artifacts": look_at_all(host) if queries.artifacts else {},
        "base": _base(host),
    }


def package_manager(host: Host) -> str:
    """apt, dnf or none."""
    for manager, program in (("apt", "apt-get"), ("dnf", "dnf"), ("dnf", "dnf5")):
        if host.find(program):
            return manager
    return "none"


def unit_name(name: str) -> str:
    """A unit's full name."""
    return name if "." in name.rpartition("@")[2] else name + ".service"


def _unit_names(queries: Queries) -> list[str]:
    names = [unit_name(name) for name in list(queries.units) + list(FIREWALLS) + list(TIME_SERVICES)]
    return list(dict.fromkeys(names))


def _programs(host: Host, queries: Queries, manager: str) -> dict[str, str]:
    """What the programs print, by a name of ours; those that are not there or fail print nothing useful."""
    properties = "--property=Id,LoadState,ActiveState,UnitFileState"
    commands = {
        "systemd": ["systemctl", "--version"],
        "virtualization": ["systemd-detect-virt"],
        "units": ["systemctl", "show", properties, "--"] + _unit_names(queries),
        "addresses": ["ip", "-j", "addr"],
    }
    for family, address in _ROUTES.items():
        commands["route" + family] = ["ip", "-j", "-" + family, "route", "get", address]
    names = list(queries.packages)
    if names and manager == "apt":
        form = "${Package}\t${Version}\t${db:Status-Abbrev}\n"
        commands["packages"] = ["dpkg-query", "--show", "--showformat=" + form, "--"] + names
        if queries.candidates:
            commands["candidates"] = ["apt-cache", "policy", "--"] + names
    elif names and manager == "dnf":
        form = "%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n"
        commands["packages"] = ["rpm", "-q", "--qf", form, "--"] + names
        if queries.candidates:
            # what is in the cache; an index that was never fetched has nothing to offer
            form = "%{name}\t%{evr}\n"
            query = ["dnf", "--cacheonly", "--quiet", "repoquery", "--latest-limit=1", "--qf", form]
            commands["candidates"] = query + names
    for binary in queries.binaries:
        path = host.find(binary)
        if path:
            words = _VERSION_WORDS.get(os.path.basename(path), ["--version"])
            commands["binary:" + path] = [path] + words  # once, by however many names it was asked for
    done = host.run_all([(argv, _LIMIT, None) for argv in commands.values()])
    texts = {name: result.out for name, result in zip(commands, done)}
    for name, result in zip(commands, done):
        if name.startswith("binary:"):
            if result.code == LATE:
                raise Late(f"{result.err}; is the machine overloaded?")
            texts[name] = result.out if facts.version(result.out) else result.err
    return texts


def _packages(host: Host, manager: str, found: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
    if manager == "apt":
        return facts.dpkg_packages(found.get("packages"))
    return facts.rpm_packages(found.get("packages"), os.uname().release), locked_by_dnf(host)


def locked_by_dnf(host: Host) -> set[str]:
    """The packages whose version dnf keeps."""
    return {name for path in VERSIONLOCKS for name in facts.versionlock(host.text(path))}


def _candidates(queries: Queries, manager: str, found: Mapping[str, str]) -> dict[str, str | None]:
    if not queries.candidates:
        return {}
    text = found.get("candidates")
    offered = facts.apt_policy(text) if manager == "apt" else facts.rpm_packages(text)
    return {package: offered.get(package) for package in queries.packages}


def _binary(host: Host, name: str, found: Mapping[str, str]) -> Binary | None:
    path = host.find(name)
    return {"path": path, "version": facts.version(found.get("binary:" + path))} if path else None


def selinux(host: Host) -> str:
    """enforcing, permissive, disabled (there, but off in this boot) or absent."""
    enforce = host.text("/sys/fs/selinux/enforce")
    if enforce is not None:
        return "enforcing" if enforce.strip() == "1" else "permissive"
    return "disabled" if host.exists("/etc/selinux/config") else "absent"


def read_only(host: Host, path: str) -> bool:
    """Whether a path lies on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(host.path(path)).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _disk_free(host: Host) -> dict[str, int]:
    free = {}
    for path in _DISKS:
        try:
            values = os.statvfs(host.path(path))
        except OSError:
            continue
        free[path] = values.f_bavail * values.f_frsize
    return free


def file_facts(host: Host, path: str) -> File:
    """What is said of a path; SHA-256 only of files that are read at once."""
    status = host.status(path)
    if status is None:
        return {"exists": False, "type": None, "leads_to": None, "sha256": None, "mode": None, "size": None}
    try:
        behind: os.stat_result | None = os.stat(host.path(path))
    except OSError:
        behind = None
    return {
        "exists": True,
        "type": _file_type(status),
        "leads_to": None if behind is None else _file_type(behind),
        "sha256": host.sha256(path) if behind is not None and behind.st_size <= _MOST_HASHED else None,
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "size": status.st_size,
    }


def _file_type(status: os.stat_result) -> str:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    return next((word for test, word in kinds if test(status.st_mode)), "other")


def kernel_modules(host: Host, names: Iterable[str]) -> dict[str, str]:
    """loaded, builtin, available or missing for each name."""
    if not names:
        return {}
    folder = "/lib/modules/" + os.uname().release
    loaded = {line.split()[0] for line in (host.text("/proc/modules") or "").splitlines() if line.split()}
    builtin = facts.module_names(host.text(folder + "/modules.builtin"))
    available = facts.module_names(host.text(folder + "/modules.dep"))
    file_systems = {line.split()[-1] for line in (host.text("/proc/filesystems") or "").splitlines() if line.split()}
    states = {}
    for name in names:
        wanted = facts.module_file(name)
        if wanted in loaded:
            states[name] = "loaded"
        elif wanted in builtin or host.is_dir("/sys/module/" + wanted) or wanted in file_systems:
            states[name] = "builtin"
        elif wanted == "br_netfilter" and host.is_dir("/proc/sys/net/bridge"):
            # built in, and without parameters: this folder is all that shows it
            states[name] = "builtin"
        else:
            states[name] = "available" if wanted in available else "missing"
    return states


def _base(host: Host) -> dict[str, Any] | None:
    return json_object(host.text(BASE))
