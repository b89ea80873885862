# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What makes a machine this machine, and what it no longer needs as an image: found, then removed.

Nothing that lies behind a link or is mounted in the file tree is the machine's own."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterable
from typing import NamedTuple

from .._common import mounts, safe_files
from .host import Host, write_file, write_link


class Rule(NamedTuple):
    """Paths to remove: shell ``patterns``, but names in ``keep``; with ``hidden`` dot files, too."""

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


def _rule(*patterns: str, keep: Iterable[str] = (), hidden: bool = False) -> Rule:
    return Rule(patterns, tuple(keep), hidden)


RULES = {
    "tmp": [_rule("/tmp/*", "/var/tmp/*", keep=_TMP_KEPT, hidden=True)],
    "shell-history": [_rule(*[f"{home}/{name}" for home in _HOMES for name in _HISTORIES])],
    "authorized-keys": [_rule(*[f"{home}/.ssh/authorized_keys*" for home in _HOMES])],
    "package-cache": [
        _rule("/var/cache/apt/*.bin", "/var/cache/apt/archives/*", keep=["lock", "partial"]),
        _rule("/var/cache/apt/archives/partial/*", "/var/lib/apt/lists/partial/*"),
        _rule("/var/lib/apt/lists/*", keep=["lock", "partial", "auxfiles"]),
        _rule("/var/cache/dnf/*", "/var/cache/yum/*", "/var/cache/libdnf5/*"),
    ],
    "leases": [
        _rule("/var/lib/dhcp/*", "/var/lib/dhclient/*", "/var/lib/dhcpcd/*", "/var/lib/NetworkManager/*.lease"),
        _rule("/var/lib/NetworkManager/secret_key", "/etc/udev/rules.d/70-persistent-net.rules"),
    ],
    "installed-record": [_rule("/etc/kubenode/installed.json")],
    "logs": [_rule("/var/lib/systemd/coredump/*", "/var/crash/*", hidden=True)],
    "journal": [_rule("/var/log/journal/*")],
    "random-seed": [
        _rule("/var/lib/systemd/random-seed", "/var/lib/urandom/random-seed"),
        _rule("/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/efi/loader/random-seed"),
    ],
    "hostname": [_rule("/etc/hostname")],
    "host-keys": [_rule("/etc/ssh/ssh_host_*_key", "/etc/ssh/ssh_host_*_key.pub")],
}

#: Files that our image commands wrote for a seed are removed with the seed, or the next machine has no data source.
CLOUD_INIT_STATE = [
    _rule("/var/lib/cloud/*", hidden=True),
    _rule("/var/log/cloud-init*.log"),
    _rule("/etc/cloud/cloud.cfg.d/zz-kubenode-*.cfg"),
]
#: Written again by cloud-init on the next machine; kept where there is no cloud-init to do so.
CLOUD_INIT_NETWORK = [
    _rule(
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

#: What shows that a machine has joined a cluster.
IS_NODE = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki/kubelet-client-current.pem")
#: The same, or is about to.
JOINED = (*IS_NODE, "/etc/kubernetes/bootstrap-kubelet.conf")

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


class Reach:
    """``left`` lists what was found and stays, for people. Raises OSError when the mounts cannot be read."""

    def __init__(self, host: Host) -> None:
        self._host = host
        found = mounts.read()
        self._kinds = {mount.id: mount.kind for mount in found}
        self._points = {mount.point for mount in found}
        self._folders: dict[str, tuple[str, str | None]] = {}
        self.left: list[str] = []

    def takes(self, path: str) -> bool:
        """Whether a path, itself not followed, may be changed or removed with all that is in it."""
        folder, name = os.path.split(path)
        real, why = self._folder(folder)
        if why is None:
            point = os.path.join(real, name)
            inside = sorted(found for found in self._points if found == point or found.startswith(point + "/"))
            why = f"{self._machine(inside[0])} is mounted" if inside else None
        if why is not None:
            self._leave(path, why)
        return why is None

    def takes_folder(self, path: str) -> bool:
        """Whether what lies in a folder may be changed."""
        why = self._folder(path)[1]
        if why is not None:
            self._leave(path, why)
        return why is None

    def _leave(self, path: str, why: str) -> None:
        text = f"{path} is left as it is: {why}"
        if text not in self.left:
            self.left.append(text)

    def _folder(self, folder: str) -> tuple[str, str | None]:
        """Where a folder really lies, and why its files are not ours to change (None when they are)."""
        if folder not in self._folders:
            self._folders[folder] = self._look(folder)
        return self._folders[folder]

    def _look(self, folder: str) -> tuple[str, str | None]:
        if folder == "/":
            return os.path.realpath(self._host.path("/")), None
        above, name = os.path.split(folder)
        parent, why = self._folder(above)
        if why is not None:
            return parent, why
        real = os.path.join(parent, name)
        try:
            status = os.lstat(real)
        except OSError:
            return real, None  # what is not there is not changed
        if stat.S_ISLNK(status.st_mode):
            if folder not in PLACES:
                return real, f"{folder} is a link"
            return self._folder(self._machine(os.path.realpath(real)))
        mount = mounts.id_at(real)
        if mount != mounts.id_at(parent):
            kind = self._kinds.get(mount, "unknown")
            if folder not in PLACES or kind not in LOCAL:
                return real, f"{folder} is a mounted file system ({kind})"
        return real, None

    def _machine(self, real: str) -> str:
        """The machine's name of a path."""
        root = os.path.realpath(self._host.path("/"))
        return real if root == "/" else "/" + os.path.relpath(real, root)


class Action(NamedTuple):
    """One thing to do: ``verb`` is REMOVE, EMPTY or WRITE; ``text`` only for the last."""

    item: str
    verb: str
    path: str
    text: str | None


_ROTATED = re.compile(r"(\.(gz|xz|bz2|zst|old|[0-9]+)|-[0-9]{8})\Z")
_KEYGEN_UNITS = ("/usr/lib/systemd/system/", "/lib/systemd/system/", "/etc/systemd/system/")


class Refused(Exception):
    """The machine is not fit to become an image; the text says why and what to do."""


def refuse_joined(host: Host) -> None:
    """Raise :class:`Refused` for a machine that belongs to a cluster."""
    found = [path for path in JOINED if host.exists(path)]
    if found:
        raise Refused(
            f"the machine belongs to a cluster ({', '.join(found)}): every machine made from it would claim to be "
            "this node. Let it leave the cluster first (the role join with join_state: absent)"
        )


def actions(host: Host, items: Iterable[str], kept: Iterable[str] = (), reach: Reach | None = None) -> list[Action]:
    """A list of :class:`Action` in the order of ITEMS; ``kept`` are paths that this run itself needs.

    ``reach`` says which files are the machine's own, and remembers what was left.
    """
    reach = reach or Reach(host)
    found: list[Action] = []
    for item in ITEMS:
        if item in items:
            done = {action.path for action in found}
            new = [action for action in _of_item(host, item, kept, reach) if action.path not in done]
            found += [action for action in new if reach.takes(action.path)]
    return found


def _of_item(host: Host, item: str, kept: Iterable[str], reach: Reach) -> list[Action]:
    found = [Action(item, REMOVE, path, None) for rule in _rules(host, item) for path in _paths(host, rule, kept)]
    if item == "logs":
        found += _logs(host, reach)
    extra = _EXTRA.get(item)
    return found + (extra(host, [action for action in found if reach.takes(action.path)]) if extra else [])


def _rules(host: Host, item: str) -> list[Rule]:
    if item == "cloud-init":
        return CLOUD_INIT_STATE + (CLOUD_INIT_NETWORK if host.find("cloud-init") else [])
    return RULES.get(item, [])


def _paths(host: Host, rule: Rule, kept: Iterable[str]) -> list[str]:
    found = []
    for pattern in rule.patterns:
        folder, name = os.path.split(pattern)
        # two patterns, since a shell pattern leaves dot files out
        for wanted in [name, ".[!.]*"] if rule.hidden else [name]:
            found += glob.glob(os.path.join(host.path(folder), wanted))
    paths = sorted({_machine_path(host, path) for path in found})
    return [path for path in paths if not _stays(path, rule.keep) and not any(_holds(path, own) for own in kept)]


def _stays(path: str, keep: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(os.path.basename(path), pattern) for pattern in keep)


def _holds(path: str, inner: str) -> bool:
    return inner == path or inner.startswith(path + "/")


def _logs(host: Host, reach: Reach) -> list[Action]:
    """Files below /var/log but the journal: old ones go, those that programs may have open are emptied."""
    found = []
    for folder, names, files in os.walk(host.path("/var/log")):
        inner = sorted(name for name in names if not os.path.islink(os.path.join(folder, name)))
        if folder == host.path("/var/log"):
            inner = [name for name in inner if name != "journal"]
        names[:] = [name for name in inner if reach.takes_folder(_machine_path(host, os.path.join(folder, name)))]
        for name in sorted(files):
            path = _machine_path(host, os.path.join(folder, name))
            status = host.status(path)
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            if _ROTATED.search(name):
                found.append(Action("logs", REMOVE, path, None))
            elif status.st_size:
                found.append(Action("logs", EMPTY, path, None))
    return found


def _machine_path(host: Host, real: str) -> str:
    return real if host.root == "/" else "/" + os.path.relpath(real, host.root)


def _machine_id(host: Host, _found: list[Action]) -> list[Action]:
    found = []
    content = host.text("/etc/machine-id")
    if "ID=flatcar" in (host.text("/etc/os-release") or "").replace('"', "").split():
        # Flatcar's first boot, and with it Ignition, is known by the file's absence
        if content is not None:
            found.append(Action("machine-id", REMOVE, "/etc/machine-id", None))
    elif content not in (None, "", "uninitialized\n"):
        # emptied, not removed: without the file, systemd takes the next boot for the very first one and presets units
        found.append(Action("machine-id", EMPTY, "/etc/machine-id", None))
    status = host.status("/var/lib/dbus/machine-id")
    if status is not None and stat.S_ISREG(status.st_mode):
        found.append(Action("machine-id", REMOVE, "/var/lib/dbus/machine-id", None))
    return found


def _host_keys(host: Host, found: list[Action]) -> list[Action]:
    keygen = any(name.startswith("sshd-keygen") for folder in _KEYGEN_UNITS for name in host.names(folder))
    if not found or keygen or host.text(HOST_KEYS_UNIT) == HOST_KEYS_TEXT:
        return []
    return [Action("host-keys", WRITE, HOST_KEYS_UNIT, HOST_KEYS_TEXT)]


def _random_seed(host: Host, found: list[Action]) -> list[Action]:
    if not found or host.text(SEED_DROP_IN) == SEED_TEXT:
        return []
    return [Action("random-seed", WRITE, SEED_DROP_IN, SEED_TEXT)]


def _iscsi(host: Host, _found: list[Action]) -> list[Action]:
    content = host.text(ISCSI_NAME)
    if content is None or "InitiatorName=" not in content:
        return []
    if any("iscsi-init.service" in host.names(folder) for folder in _KEYGEN_UNITS):
        return [Action("iscsi", REMOVE, ISCSI_NAME, None)]
    # this content makes Debian's open-iscsi generate a name at its next start
    return [Action("iscsi", WRITE, ISCSI_NAME, ISCSI_TEXT)]


_EXTRA = {
    "machine-id": _machine_id,
    "host-keys": _host_keys,
    "random-seed": _random_seed,
    "iscsi": _iscsi,
}


_TRIM_SECONDS = 300
_RUN_SECONDS = 60


def apply(host: Host, actions: Iterable[Action]) -> list[str]:
    """Carry out the actions in their order; returns warnings. Raises OSError, with the path in it."""
    warnings = []
    if any(action.item == "journal" for action in actions) and host.systemd_runs:
        # from now on, until the next boot, the journal is kept in memory only
        warnings += _run(host, ["journalctl", "--rotate"]) + _run(host, ["journalctl", "--relinquish-var"])
    for action in actions:
        warnings += _ONE[action.verb](host, action)
        if action.path == HOST_KEYS_UNIT:
            write_link(host, HOST_KEYS_WANTED, HOST_KEYS_UNIT)
    if any(action.verb == WRITE for action in actions) and host.systemd_runs:
        warnings += _run(host, ["systemctl", "daemon-reload"])
    os.sync()
    return warnings


def trim(host: Host) -> list[str]:
    """Discard the free blocks of the disks (fstrim), so that an image of them is small; returns warnings."""
    if host.container or not host.find("fstrim"):
        return []
    return _run(host, ["fstrim", "--all"], _TRIM_SECONDS)


def _run(host: Host, argv: list[str], seconds: float = _RUN_SECONDS) -> list[str]:
    done = host.run(argv, seconds)
    return [f"{' '.join(argv)}: {(done.err or done.out).strip()[-500:]}"] if done.code else []


def _remove(host: Host, action: Action) -> list[str]:
    return [f"{path} is left as it is: it is mounted" for path in safe_files.remove(host.path(action.path))]


def _empty(host: Host, action: Action) -> list[str]:
    folder, name = os.path.split(host.path(action.path))
    with contextlib.suppress(FileNotFoundError):
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _truncate(parent, name, action.path)
        finally:
            os.close(parent)
    return []


def _truncate(parent: int, name: str, path: str) -> None:
    try:
        fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    try:
        if mounts.id_of(fd) != mounts.id_of(parent):
            raise OSError(errno.EBUSY, "another file is mounted over it", path)
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _write(host: Host, action: Action) -> list[str]:
    write_file(host, action.path, (action.text or "").encode("utf-8"), 0o644)
    return []


_ONE = {REMOVE: _remove, EMPTY: _empty, WRITE: _write}
