# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The words: what can be removed, in the order in which it is, and where it lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Rule(NamedTuple):
    """``patterns`` are shell patterns of absolute paths, ``keep`` names that stay; ``hidden`` also takes dot files."""

    verb: str
    patterns: tuple[str, ...]
    keep: tuple[str, ...]
    hidden: bool


REMOVE = "remove"
EMPTY = "empty"
WRITE = "write"

#: What node_cleanup can remove. Host keys and the machine id come last: what runs before still needs them.
ITEMS = (
    "tmp",
    "shell-history",
    "authorized-keys",
    "package-cache",
    "leases",
    "iscsi",
    "installed-record",
    "cloud-init",
    "logs",
    "journal",
    "random-seed",
    "hostname",
    "machine-id",
    "host-keys",
)
#: What is removed only when it is asked for: without these, a login or the name of the machine may be lost.
ASKED = ("authorized-keys", "hostname")

_HISTORIES = [
    ".ash_history",
    ".bash_history",
    ".history",
    ".lesshst",
    ".mysql_history",
    ".node_repl_history",
    ".psql_history",
    ".python_history",
    ".sh_history",
    ".viminfo",
    ".wget-hsts",
    ".zsh_history",
]
_HOMES = ("/root", "/home/*")

#: Leftovers that running programs need: this very module's, and those of services with a /tmp of their own.
_TMP_KEPT = ("ansible*", ".ansible*", "systemd-private-*", "snap-private-tmp", ".X*-unix", ".ICE-unix", ".font-unix")


def _rule(verb: str, *patterns: str, keep: Iterable[str] = (), hidden: bool = False) -> Rule:
    return Rule(verb, patterns, tuple(keep), hidden)


RULES = {
    "tmp": [_rule(REMOVE, "/tmp/*", "/var/tmp/*", keep=_TMP_KEPT, hidden=True)],
    "shell-history": [_rule(REMOVE, *["%s/%s" % (home, name) for home in _HOMES for name in _HISTORIES])],
    "authorized-keys": [_rule(REMOVE, *["%s/.ssh/authorized_keys*" % home for home in _HOMES])],
    "package-cache": [
        _rule(REMOVE, "/var/cache/apt/*.bin", "/var/cache/apt/archives/*", keep=["lock", "partial"]),
        _rule(REMOVE, "/var/cache/apt/archives/partial/*", "/var/lib/apt/lists/partial/*"),
        _rule(REMOVE, "/var/lib/apt/lists/*", keep=["lock", "partial", "auxfiles"]),
        _rule(REMOVE, "/var/cache/dnf/*", "/var/cache/yum/*", "/var/cache/libdnf5/*"),
    ],
    "leases": [
        _rule(REMOVE, "/var/lib/dhcp/*", "/var/lib/dhclient/*", "/var/lib/dhcpcd/*", "/var/lib/NetworkManager/*.lease"),
        _rule(REMOVE, "/var/lib/NetworkManager/secret_key", "/etc/udev/rules.d/70-persistent-net.rules"),
    ],
    "installed-record": [_rule(REMOVE, "/etc/kubenode/installed.json")],
    "logs": [_rule(REMOVE, "/var/lib/systemd/coredump/*", "/var/crash/*", hidden=True)],
    "journal": [_rule(REMOVE, "/var/log/journal/*")],
    "random-seed": [
        _rule(REMOVE, "/var/lib/systemd/random-seed", "/var/lib/urandom/random-seed"),
        _rule(REMOVE, "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed"),
    ],
    "hostname": [_rule(REMOVE, "/etc/hostname")],
    "host-keys": [_rule(REMOVE, "/etc/ssh/ssh_host_*_key", "/etc/ssh/ssh_host_*_key.pub")],
}

#: Files that our image commands wrote for a seed are removed with the seed, or the next machine has no data source.
CLOUD_INIT_STATE = [
    _rule(REMOVE, "/var/lib/cloud/*", hidden=True),
    _rule(REMOVE, "/var/log/cloud-init*.log"),
    _rule(REMOVE, "/etc/cloud/cloud.cfg.d/zz-kubenode-*.cfg"),
]
#: Written again by cloud-init on the next machine; kept where there is no cloud-init to do so.
CLOUD_INIT_NETWORK = [
    _rule(
        REMOVE,
        "/etc/netplan/50-cloud-init.yaml",
        "/etc/network/interfaces.d/50-cloud-init*",
        "/etc/systemd/network/10-cloud-init-*.network",
        "/etc/NetworkManager/system-connections/cloud-init-*.nmconnection",
    )
]

#: Where a machine's own file tree may go on with a file system of its own, or behind a link of the distribution.
#: File systems of other kinds are there for a time only, or are shared with other machines.
PLACES = (
    "/boot",
    "/boot/efi",
    "/efi",
    "/home",
    "/root",
    "/tmp",
    "/var",
    "/var/home",
    "/var/log",
    "/var/log/audit",
    "/var/log/journal",
    "/var/tmp",
)
#: File systems of one machine; all others may be another machine's as well.
LOCAL = ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "vfat", "xfs", "zfs")

#: What shows that a machine has joined a cluster, or is about to.
JOINED = (
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
)

#: Makes host keys where nothing else does; cloud-init, which does it for a new instance, comes first.
HOST_KEYS_UNIT = "/etc/systemd/system/kubenode-host-keys.service"
HOST_KEYS_WANTED = "/etc/systemd/system/multi-user.target.wants/kubenode-host-keys.service"
HOST_KEYS_TEXT = """\
# Written by kubenode.provision: a machine made from an image makes its own SSH host keys.
[Unit]
Description=Make SSH host keys
After=cloud-init.service cloud-init-network.service
Before=ssh.service sshd.service ssh.socket sshd.socket
ConditionPathExistsGlob=!/etc/ssh/ssh_host_*_key

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
"""

#: Until the machine is off: no seed is saved at shutdown, which every machine of the image would begin with.
SEED_DROP_IN = "/run/systemd/system/systemd-random-seed.service.d/90-kubenode.conf"
SEED_TEXT = "[Service]\nExecStop=\n"

ISCSI_NAME = "/etc/iscsi/initiatorname.iscsi"
ISCSI_TEXT = "GenerateName=yes\n"
