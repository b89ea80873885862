# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The facts of a machine, as node_info returns them and plans of base and join read them; and their readers (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from .._common.mounts import unescape
from .._common.text import json_objects, whole_number


class System(TypedDict, total=False):
    """The operating system, from os-release; what it does not say is empty."""

    id: str
    version_id: str
    id_like: list[str]
    pretty_name: str
    codename: str


class Clock(TypedDict, total=False):
    """The machine's clock (seconds since 1970), and who keeps it: unit → active, inactive or absent."""

    unix: float
    ntp_synchronized: bool | None
    services: dict[str, str]


class Network(TypedDict, total=False):
    """Addresses of all interfaces, and by family ("4", "6") what the default route uses."""

    addresses: list[dict[str, Any]]
    default: dict[str, dict[str, Any] | None]


class File(TypedDict):
    """A path: its type (file, directory, link, other), SHA-256, mode as four octal digits, size in bytes.

    ``leads_to`` is the type of what is there when links are followed; None when nothing is.
    """

    exists: bool
    type: str | None
    leads_to: str | None
    sha256: str | None
    mode: str | None
    size: int | None


class Binary(TypedDict):
    """Where a program lies, and the version that it says; None when it says none."""

    path: str
    version: str | None


class Node(TypedDict, total=False):
    """A machine. Sizes are in bytes; ``packages``, ``binaries`` and ``files`` have what was asked for."""

    os: System
    arch: str
    kernel: str
    systemd: int | None
    cgroup: int
    container: bool
    virtualization: str
    python: str
    package_manager: str
    read_only_usr: bool
    selinux: str
    firewall: dict[str, str]
    cpus: int
    memory_bytes: int
    disk_free: dict[str, int]
    time: Clock
    swaps: list[dict[str, Any]]
    machine_id: str
    boot_id: str
    hostname: str
    uid: int
    in_rescue: bool
    network: Network
    #: file → its name servers
    resolv: dict[str, list[str]]
    #: package → version, None when it is not installed
    packages: dict[str, str | None]
    candidates: dict[str, str | None]
    held: list[str]
    binaries: dict[str, Binary | None]
    units: dict[str, dict[str, Any]]
    files: dict[str, File]
    sysctls: dict[str, str | None]
    modules: dict[str, str]
    #: artifact → what its record and its files say
    artifacts: dict[str, Any]
    #: /etc/kubenode/base.json, None when base was not on the machine
    base: dict[str, Any] | None
    #: the kubelet that base would install, in check mode (written by the role join)
    assumed_kubelet: str
    #: that, where base installs it in the same run, so that the one which is there now is not the one that counts
    expected_kubelet: str


#: The machine's words for architectures, in those of Kubernetes.
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_VERSION = re.compile(r"(?<![\w.])v?([0-9]+\.[0-9]+(?:\.[0-9]+)?(?:[-+~.][0-9A-Za-z.~+-]*[0-9A-Za-z])?)")


def os_release(text: str | None) -> System:
    """The os part of the facts; missing fields are empty."""
    fields = {}
    for line in (text or "").splitlines():
        name, separator, value = line.strip().partition("=")
        if not separator or name.startswith("#"):
            continue
        try:
            fields[name] = "".join(shlex.split(value, posix=True)[:1])
        except ValueError:
            fields[name] = value.strip("\"'")
    return {
        "id": fields.get("ID", "").lower(),
        "version_id": fields.get("VERSION_ID", ""),
        "id_like": fields.get("ID_LIKE", "").lower().split(),
        "pretty_name": fields.get("PRETTY_NAME", ""),
        "codename": fields.get("VERSION_CODENAME", ""),
    }


def systemd_version(text: str | None) -> int | None:
    """The number in the first line of `systemctl --version`; None when it has none."""
    match = re.match(r"systemd ([0-9]{1,9})\b", text or "")
    return int(match.group(1)) if match else None


def memory_bytes(text: str | None) -> int:
    """MemTotal of /proc/meminfo in bytes; 0 when it does not say."""
    match = re.search(r"^MemTotal:\s+([0-9]+) kB", text or "", re.MULTILINE)
    return (whole_number(match.group(1)) or 0) * 1024 if match else 0


def swaps(text: str | None) -> list[dict[str, Any]]:
    """The entries of /proc/swaps; size in bytes."""
    found = []
    for line in (text or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 3:
            name = unescape(fields[0])
            size = (whole_number(fields[2]) or 0) * 1024
            found.append({"name": name, "type": fields[1], "size": size})
    return found


def nameservers(text: str | None) -> list[str]:
    """The nameservers of a resolv.conf, in order."""
    found = []
    for line in (text or "").splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0] == "nameserver":
            found.append(fields[1])
    return found


def addresses(text: str | None) -> list[dict[str, Any]]:
    """What `ip -j addr` says, a dictionary for each address except those of loopback interfaces."""
    found = []
    for link in json_objects(text):
        if "LOOPBACK" in link.get("flags", ()):
            continue
        for entry in link.get("addr_info", ()):
            family = {"inet": 4, "inet6": 6}.get(entry.get("family"))
            if family and entry.get("local"):
                found.append(
                    {
                        "address": entry["local"],
                        "prefix": entry.get("prefixlen", 0),
                        "family": family,
                        "interface": link.get("ifname", ""),
                        "scope": entry.get("scope", ""),
                        "dynamic": bool(entry.get("dynamic")),
                        "deprecated": bool(entry.get("deprecated")),
                    }
                )
    return found


def route(text: str | None) -> dict[str, Any] | None:
    """What `ip -j route get ADDRESS` says: address, interface and gateway (empty when there is none), or None."""
    for entry in json_objects(text):
        # an unreachable route has a type and no source
        if entry.get("prefsrc") and entry.get("dev") and entry.get("type", "unicast") == "unicast":
            return {
                "address": entry["prefsrc"],
                "interface": entry["dev"],
                "gateway": entry.get("gateway") or (entry.get("via") or {}).get("host", ""),
            }
    return None


def units(text: str | None, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The blocks of `systemctl show NAMES`, in the order of the names, as {name: {property: value}}."""
    blocks = [block for block in re.split(r"\n\s*\n", (text or "").strip("\n")) if block.strip()]
    found = {}
    for name, block in zip(names, blocks):
        pairs = (line.partition("=") for line in block.splitlines())
        found[name] = {key: value for key, separator, value in pairs if separator}
    return found


def unit_facts(properties: Mapping[str, str]) -> dict[str, str]:
    """load, active and enabled of one unit; a unit that is not there has not-found and inactive."""
    return {
        "load": properties.get("LoadState", "not-found"),
        "active": properties.get("ActiveState", "inactive"),
        "enabled": properties.get("UnitFileState", ""),
    }


def service_state(properties: Mapping[str, str]) -> str:
    """active, inactive or absent."""
    facts = unit_facts(properties)
    if facts["load"] not in ("loaded", "masked"):
        return "absent"
    return "active" if facts["active"] in ("active", "activating", "reloading") else "inactive"


def version(text: str | None) -> str | None:
    """The first version number in what a program prints, without a leading v; None when there is none."""
    match = _VERSION.search(text or "")
    return match.group(1) if match else None


def module_file(name: str) -> str:
    """The name of a kernel module as it is compared."""
    return name.replace("-", "_")


def module_names(text: str | None) -> set[str]:
    """Names of the modules in modules.dep or modules.builtin."""
    found = set()
    for line in (text or "").splitlines():
        path = line.partition(":")[0].strip()
        base = path.rpartition("/")[2]
        if ".ko" in base:
            found.add(module_file(base.partition(".ko")[0]))
    return found


def sysctl_path(key: str) -> str:
    """The file below /proc/sys of a key, in either spelling: net.ipv4.conf.eth0/1.x or net/ipv4/conf/eth0.1/x."""
    dot, slash = key.find("."), key.find("/")
    if slash == -1 or -1 < dot < slash:
        key = key.translate({ord("."): "/", ord("/"): "."})
    return "/proc/sys/" + key


def sysctl_value(text: Any) -> str | None:
    """A sysctl value with single spaces, as it is compared; None stays None."""
    return None if text is None else " ".join(str(text).split())


def dpkg_packages(text: str | None) -> tuple[dict[str, str], set[str]]:
    """dpkg-query's lines `name TAB version TAB want-status-error` as ({name: version}, {held names})."""
    versions, held = {}, set()
    for line in (text or "").splitlines():
        fields = line.split("\t")
        if len(fields) != 3:
            continue
        name, version, status = fields[0], fields[1], fields[2].strip()
        if status[:1] == "h":
            held.add(name)
        # i: installed; W and t: installed, and a trigger is due
        if status[1:2] in ("i", "W", "t") and version:
            versions[name] = version
    return versions, held


def rpm_packages(text: str | None, kernel: str = "") -> dict[str, str]:
    """Lines `name TAB [epoch:]version-release` of rpm or dnf as {name: version}; other lines name what is missing.

    Of a package that is there in several versions, the one of the running kernel counts, else the last.
    """
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        pair = line.split("\t")
        if len(pair) == 2 and not (kernel and kernel.startswith(found.get(pair[0], "-") + ".")):
            found[pair[0]] = pair[1].replace("(none):", "")
    return found


def apt_policy(text: str | None) -> dict[str, str]:
    """`apt-cache policy` as {name: candidate}, without those that have none."""
    found, name = {}, None
    for line in (text or "").splitlines():
        if line and not line[0].isspace():
            name = line.rstrip(":")
        elif name and line.strip().startswith("Candidate:"):
            candidate = line.split(":", 1)[1].strip()
            if candidate and candidate != "(none)":
                found[name] = candidate
    return found


def versionlock(text: str | None) -> set[str]:
    """Names in dnf's versionlock.list (`name-epoch:version-release.arch`, `name-version…`) or versionlock.toml."""
    found = set()
    for line in (text or "").splitlines():
        line = line.strip()
        toml = re.match(r"""name\s*=\s*["']([^"']+)["']""", line)
        if toml:
            found.add(toml.group(1))
        elif line and line[0] not in "#![" and "=" not in line:
            # the version begins at the last hyphen but one: a release may have no hyphen, a version neither
            words = re.sub(r"\.\*\Z", "", line).split("-")
            if len(words) >= 3:
                found.add("-".join(words[:-2]) or line)
            elif words[0]:
                found.add(words[0])
    return found
