# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating systems that base supports, and what it needs to know of each; version numbers as they write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node

from .plan_types import BaseInputs

_PLAIN_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?\Z")
_LEADING = re.compile(r"(?:[0-9]+:)?v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")


def is_release(text: str) -> bool:
    """Whether the text is a full release number, for example 1.36.4 (no v, no suffix)."""
    match = _PLAIN_VERSION.match(text)
    return bool(match and match.group(3) and numbers(text))


def numbers(text: str | None) -> tuple[int, int, int] | None:
    """The (major, minor, patch) a version begins with, without epoch and distribution suffix; None when there is none.

    1.7.24~ds1-6+deb13u1 → (1, 7, 24); 5:27.3.1-1~debian → (27, 3, 1); 2.3 → (2, 3, 0).
    """
    match = _LEADING.match(text or "")
    if not match:
        return None
    major, minor_, patch = (whole_number(part or "0") for part in match.groups())
    return None if major is None or minor_ is None or patch is None else (major, minor_, patch)


def plain_version(text: str | None) -> str:
    """The version as major.minor.patch, "" when the text has none."""
    found = numbers(text)
    return ".".join(map(str, found)) if found else ""


def release_numbers(text: str) -> tuple[int, int, int]:
    """(major, minor, patch) of a text that is a version; ValueError for another."""
    found = numbers(text)
    if found is None:
        raise ValueError(f"{text!r} is no version")
    return found


def minor_number(text: str) -> tuple[int, int]:
    """(major, minor) of a text that is a version or a release line; ValueError for another."""
    return release_numbers(text)[:2]


def minor(text: str) -> str:
    """The release line of a version, for example 1.36 of 1.36.4; ValueError for a text that is no version."""
    return "{}.{}".format(*minor_number(text))


def for_minor(table: Mapping[str, Any], version: str) -> Any:
    """The entry of a table by minor that a version gets: its own, else the nearest older minor's, else the oldest.

    A minor that the table does not know yet is so handled like the newest known one.
    """
    wanted = minor_number(version)
    known = sorted(table, key=release_numbers)
    chosen = known[0]
    for name in known:
        if minor_number(name) <= wanted:
            chosen = name
    return table[chosen]


def satisfies(version: str, minimums: Iterable[str]) -> bool:
    """Whether a version is at or above the minimum of its own release line, or of a line newer than every listed one.

    A line between or below the listed ones was never tested by the project, so it does not satisfy.
    """
    found, lines = release_numbers(version), {minor_number(text): release_numbers(text) for text in minimums}
    if found[:2] in lines:
        return found >= lines[found[:2]]
    return found[:2] > max(lines)


DEBIAN, RHEL, AMAZON, FLATCAR = "debian", "rhel", "amazon", "flatcar"


@dataclass(frozen=True)
class System:
    """What base needs to know of one operating system release."""

    name: str
    family: str
    version: str
    #: (major, minor) of the C library, which says whether containerd's dynamic build starts
    glibc: tuple[int, int]
    #: containerd of the distribution as it was released, "" for none; taken until the machine knows better
    containerd: str
    #: folder below download.docker.com/linux, "" when there is none
    docker_repository: str = ""

    @property
    def package_manager(self) -> str:
        """apt, dnf or none."""
        return {DEBIAN: "apt", FLATCAR: "none"}.get(self.family, "dnf")

    @property
    def bin_dir(self) -> str:
        """Where programs go that no package manager owns."""
        return "/opt/bin" if self.family == FLATCAR else "/usr/local/bin"

    @property
    def lib_dir(self) -> str:
        """Where our own helper programs go; /usr is read-only on Flatcar."""
        return "/opt/kubenode" if self.family == FLATCAR else "/usr/local/lib/kubenode"

    @property
    def static_containerd(self) -> bool:
        """Whether the C library is older than the one containerd's dynamic build was linked against (2.35)."""
        return self.glibc < (2, 35)

    @property
    def docker_package(self) -> str:
        """Docker Engine of the distribution, "" when it has none."""
        return {DEBIAN: "docker.io", AMAZON: "docker"}.get(self.family, "")


#: ID and VERSION_ID of os-release → what base knows of it
RELEASES = {
    ("debian", "12"): System("Debian 12", DEBIAN, "12", (2, 36), "1.6.20", "debian"),
    ("debian", "13"): System("Debian 13", DEBIAN, "13", (2, 41), "1.7.24", "debian"),
    ("ubuntu", "22.04"): System("Ubuntu 22.04", DEBIAN, "22.04", (2, 35), "1.7.2", "ubuntu"),
    ("ubuntu", "24.04"): System("Ubuntu 24.04", DEBIAN, "24.04", (2, 39), "1.7.12", "ubuntu"),
    ("ubuntu", "26.04"): System("Ubuntu 26.04", DEBIAN, "26.04", (2, 43), "2.2.1", "ubuntu"),
    ("amzn", "2023"): System("Amazon Linux 2023", AMAZON, "2023", (2, 34), "2.1.4"),
}
for _id, _name in (("rocky", "Rocky Linux"), ("almalinux", "AlmaLinux"), ("rhel", "RHEL")):
    for _version, _glibc in (("9", (2, 34)), ("10", (2, 39))):
        _repository = "rhel" if _id == "rhel" else "centos"
        RELEASES[_id, _version] = System(f"{_name} {_version}", RHEL, _version, _glibc, "", _repository)
_FLATCAR = System("Flatcar", FLATCAR, "", (2, 38), "2.0.4")

SUPPORTED = (
    "Debian 12 and 13, Ubuntu 22.04, 24.04 and 26.04, Rocky Linux, AlmaLinux and RHEL 9 and 10, "
    "Amazon Linux 2023, Flatcar"
)


def system_of(node: Node) -> System | None:
    """The System of a machine's facts, None when base does not support it."""
    os_facts = node["os"]
    name, version = os_facts["id"], str(os_facts.get("version_id") or "")
    if name == "flatcar":
        return _FLATCAR
    if name in ("rocky", "almalinux", "rhel"):
        version = version.partition(".")[0]
    return RELEASES.get((name, version))


def known(node: Node) -> System:
    """The System of a machine that the preflight let pass."""
    system = system_of(node)
    if system is None:
        raise ValueError(
            f"{node['os'].get('pretty_name') or node['os']['id']} is not supported; supported are {SUPPORTED}"
        )
    return system


def bin_dir(node: Node, inputs: BaseInputs) -> str:
    """Where kubelet, crictl and the tarball's programs go."""
    return inputs["bin_dir"] or known(node).bin_dir
