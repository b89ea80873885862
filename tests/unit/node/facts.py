# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of fresh machines as node_info returns them, one for each supported operating system."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_inputs

CHECKOUT = Path(__file__).resolve().parents[3]
#: when the facts were read, seconds since 1970
READ_AT = 1795000000.0

#: a system a line, "-" where there is none; like: ID_LIKE of its os-release, time: the time service that runs
_TABLE = """\
name          version   like                codename  kernel                     systemd  selinux     time
debian-12     12        -                   bookworm  6.1.0-38-cloud-amd64       252      absent      -
debian-13     13        -                   trixie    6.12.48+deb13-cloud-amd64  257      absent      systemd-timesyncd
ubuntu-22.04  22.04     debian              jammy     5.15.0-151-generic         249      absent      systemd-timesyncd
ubuntu-24.04  24.04     debian              noble     6.8.0-79-generic           255      absent      chrony
ubuntu-26.04  26.04     debian              resolute  7.0.0-10-generic           259      absent      chrony
rocky-9       9.6       rhel,centos,fedora  -         5.14.0-570.el9.x86_64      252      enforcing   chronyd
rocky-10      10.0      rhel,centos,fedora  -         6.12.0-55.el10.x86_64      257      enforcing   chronyd
almalinux-9   9.6       rhel,centos,fedora  -         5.14.0-570.el9.x86_64      252      enforcing   chronyd
almalinux-10  10.0      rhel,centos,fedora  -         6.12.0-55.el10.x86_64      257      enforcing   chronyd
rhel-9        9.6       fedora              -         5.14.0-570.el9.x86_64      252      enforcing   chronyd
rhel-10       10.0      centos,fedora       -         6.12.0-55.el10.x86_64      257      enforcing   chronyd
amzn-2023     2023      fedora              -         6.1.144-170.amzn2023       252      permissive  chronyd
flatcar       4230.2.2  coreos              -         6.6.100-flatcar            255      permissive  systemd-timesyncd
"""
_PRETTY_NAMES = """\
Debian GNU/Linux 12 (bookworm)
Debian GNU/Linux 13 (trixie)
Ubuntu 22.04.5 LTS
Ubuntu 24.04.3 LTS
Ubuntu 26.04 LTS
Rocky Linux 9.6 (Blue Onyx)
Rocky Linux 10.0 (Red Quartz)
AlmaLinux 9.6 (Sage Margay)
AlmaLinux 10.0 (Purple Lion)
Red Hat Enterprise Linux 9.6 (Plow)
Red Hat Enterprise Linux 10.0 (Coughlan)
Amazon Linux 2023.8.20250721
Flatcar Container Linux by Kinvolk 4230.2.2 (Oklo)
"""
#: name → its pretty name and the values of its line
_SYSTEMS = {
    line.split()[0]: [pretty, *("" if value == "-" else value for value in line.split()[1:])]
    for line, pretty in zip(_TABLE.splitlines()[1:], _PRETTY_NAMES.splitlines(), strict=True)
}
NAMES = tuple(_SYSTEMS)
_MANAGERS = {"debian": "apt", "ubuntu": "apt", "flatcar": "none"}


@functools.cache
def _data() -> dict[str, Any]:
    text = (CHECKOUT / "roles/base/vars/main/versions.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["base_versions"]


def data() -> dict[str, Any]:
    """The role's data file."""
    return copy.deepcopy(_data())


def given(**variables: Any) -> dict[str, Any]:
    """Inputs of the plan from variables without their prefix."""
    return base_inputs.normalised(variables, data())


def node(name: str, **over: Any) -> dict[str, Any]:
    """A machine right after its first boot."""
    pretty, version, like, codename, kernel, systemd, selinux, service = _SYSTEMS[name]
    identity, likes = name.partition("-")[0], like.split(",") if like else []
    facts: dict[str, Any] = {
        "os": {"id": identity, "version_id": version, "id_like": likes, "pretty_name": pretty, "codename": codename},
        "arch": "amd64",
        "kernel": kernel,
        "systemd": int(systemd),
        "cgroup": 2,
        "container": False,
        "virtualization": "kvm",
        "python": "3.11.2",
        "package_manager": _MANAGERS.get(identity, "dnf"),
        "read_only_usr": identity == "flatcar",
        "selinux": selinux,
        "firewall": {"firewalld": "absent", "ufw": "absent", "nftables": "inactive"},
        "cpus": 4,
        "memory_bytes": 8 << 30,
        "disk_free": {"/": 70 << 30},
        "time": {
            "unix": READ_AT,
            "ntp_synchronized": bool(service),
            "services": {service: "active"} if service else {"systemd-timesyncd": "absent"},
        },
        "swaps": [],
        "hostname": "node-1",
        "network": {
            "addresses": [],
            "default": {"4": {"address": "192.0.2.10", "interface": "eth0", "gateway": "192.0.2.1"}, "6": None},
        },
        "packages": {},
        "candidates": {},
        "held": [],
        "binaries": {},
        "units": {},
        "base": None,
    }
    facts.update(copy.deepcopy(over))
    return facts
