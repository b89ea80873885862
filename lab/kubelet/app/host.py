# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine is: swap, cgroups, runtime, CNI, addresses, system information. Places can be moved for tests."""

from __future__ import annotations

import json
import os
import platform
import socket
from pathlib import Path

from lab.kubelet.app.files import text

SWAPS = "KUBELET_STANDIN_SWAPS"
CGROUP = "KUBELET_STANDIN_CGROUP"
CNI = "KUBELET_STANDIN_CNI"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def place(variable: str, default: str) -> str:
    """A path of the machine, or what the environment says instead."""
    return os.environ.get(variable) or default


def swaps() -> list[str]:
    """Lines of the active swaps."""
    return text(place(SWAPS, "/proc/swaps")).splitlines()[1:]


def cgroup_v2() -> bool:
    """Whether the unified hierarchy is mounted."""
    return Path(place(CGROUP, "/sys/fs/cgroup"), "cgroup.controllers").exists()


def runtime_problem(endpoint: str) -> str:
    """Why the container runtime cannot be reached; empty when it can."""
    scheme, mark, path = endpoint.partition("://")
    if not mark:
        scheme, path = "unix", endpoint
    if scheme != "unix":
        return 'protocol "%s" not supported' % scheme
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    try:
        connection.connect(path)
    except OSError as problem:
        return "dial unix %s: connect: %s" % (path, (problem.strerror or str(problem)).lower())
    finally:
        connection.close()
    return ""


def cni_ready() -> bool:
    """Whether a network configuration is there that a runtime would load."""
    folder = Path(place(CNI, "/etc/cni/net.d"))
    for path in sorted(folder.glob("*")):
        if path.suffix not in (".conf", ".conflist", ".json"):
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict) and content.get("name") and (content.get("plugins") or content.get("type")):
            return True
    return False


def hostname() -> str:
    """The machine's name as a node's: lower case, without blanks around it."""
    return socket.gethostname().strip().lower()


def addresses(wanted: str, server: str) -> list[str]:
    """``--node-ip`` when given, else the address that speaks to the API server."""
    given = [part.strip() for part in wanted.split(",") if part.strip() and part.strip() not in ("::", "0.0.0.0")]
    if given:
        return given
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        for target in (server, probe):
            connection = socket.socket(family, socket.SOCK_DGRAM)
            try:
                connection.connect((target, 9))
                return [connection.getsockname()[0]]
            except OSError:
                continue
            finally:
                connection.close()
    return ["127.0.0.1"]


def system(version: str) -> dict[str, str]:
    """``nodeInfo`` of the node's status."""
    release = dict(line.split("=", 1) for line in text("/etc/os-release").splitlines() if "=" in line)
    return {
        "machineID": text("/etc/machine-id"),
        "systemUUID": text("/sys/class/dmi/id/product_uuid") or text("/etc/machine-id"),
        "bootID": text("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": release.get("PRETTY_NAME", "Linux").strip("\"'"),
        "containerRuntimeVersion": "containerd://Unknown",
        "kubeletVersion": "v" + version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture(),
    }


def architecture() -> str:
    """As Go names it."""
    return _MACHINES.get(platform.machine(), platform.machine())


def memory_bytes() -> int:
    """Size of the main memory."""
    for line in text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def disk_bytes(folder: str) -> int:
    """Size of the file system that holds ``folder``."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize
