# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What makes a machine this machine: found, then removed."""

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

from ..._common import mounts, trees
from ..machine import atomic
from ..machine.host import Host
from . import removable
from .reach import Reach


class Action(NamedTuple):
    """One thing to do: ``verb`` of removable, ``text`` only for removable.WRITE."""

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
    found = [path for path in removable.JOINED if host.exists(path)]
    if found:
        raise Refused(
            "the machine belongs to a cluster (%s): every machine made from it would claim to be this node."
            " Let it leave the cluster first (the role join with join_state: absent)" % ", ".join(found)
        )


def actions(host: Host, items: Iterable[str], kept: Iterable[str] = (), reach: Reach | None = None) -> list[Action]:
    """A list of :class:`Action` in the order of removable.ITEMS; ``kept`` are paths that this run itself needs.

    ``reach`` says which files are the machine's own, and remembers what was left.
    """
    reach = reach or Reach(host)
    found: list[Action] = []
    for item in removable.ITEMS:
        if item in items:
            done = {action.path for action in found}
            new = [action for action in _of_item(host, item, kept, reach) if action.path not in done]
            found += [action for action in new if reach.takes(action.path)]
    return found


def _of_item(host: Host, item: str, kept: Iterable[str], reach: Reach) -> list[Action]:
    found = [Action(item, rule.verb, path, None) for rule in _rules(host, item) for path in _paths(host, rule, kept)]
    if item == "logs":
        found += _logs(host, reach)
    extra = _EXTRA.get(item)
    return found + (extra(host, [action for action in found if reach.takes(action.path)]) if extra else [])


def _rules(host: Host, item: str) -> list[removable.Rule]:
    if item == "cloud-init":
        return removable.CLOUD_INIT_STATE + (removable.CLOUD_INIT_NETWORK if host.find("cloud-init") else [])
    return removable.RULES.get(item, [])


def _paths(host: Host, rule: removable.Rule, kept: Iterable[str]) -> list[str]:
    found = []
    for pattern in rule.patterns:
        folder, name = os.path.split(pattern)
        # two patterns, since a shell pattern leaves dot files out
        for wanted in [name, ".[!.]*"] if rule.hidden else [name]:
            found += glob.glob(os.path.join(host.path(folder), wanted))
    cut = len(host.path("/")) - 1
    paths = sorted({path[cut:] if cut else path for path in found})
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
                found.append(Action("logs", removable.REMOVE, path, None))
            elif status.st_size:
                found.append(Action("logs", removable.EMPTY, path, None))
    return found


def _machine_path(host: Host, real: str) -> str:
    return real if host.root == "/" else "/" + os.path.relpath(real, host.root)


def _machine_id(host: Host, _found: list[Action]) -> list[Action]:
    found = []
    content = host.text("/etc/machine-id")
    if "ID=flatcar" in (host.text("/etc/os-release") or "").replace('"', "").split():
        # Flatcar's first boot, and with it Ignition, is known by the file's absence
        if content is not None:
            found.append(Action("machine-id", removable.REMOVE, "/etc/machine-id", None))
    elif content not in (None, "", "uninitialized\n"):
        # emptied, not removed: without the file, systemd takes the next boot for the very first one and presets units
        found.append(Action("machine-id", removable.EMPTY, "/etc/machine-id", None))
    status = host.status("/var/lib/dbus/machine-id")
    if status is not None and stat.S_ISREG(status.st_mode):
        found.append(Action("machine-id", removable.REMOVE, "/var/lib/dbus/machine-id", None))
    return found


def _host_keys(host: Host, found: list[Action]) -> list[Action]:
    keygen = any(name.startswith("sshd-keygen") for folder in _KEYGEN_UNITS for name in host.names(folder))
    if not found or keygen or host.text(removable.HOST_KEYS_UNIT) == removable.HOST_KEYS_TEXT:
        return []
    return [Action("host-keys", removable.WRITE, removable.HOST_KEYS_UNIT, removable.HOST_KEYS_TEXT)]


def _random_seed(host: Host, found: list[Action]) -> list[Action]:
    if not found or host.text(removable.SEED_DROP_IN) == removable.SEED_TEXT:
        return []
    return [Action("random-seed", removable.WRITE, removable.SEED_DROP_IN, removable.SEED_TEXT)]


def _iscsi(host: Host, _found: list[Action]) -> list[Action]:
    content = host.text(removable.ISCSI_NAME)
    if content is None or "InitiatorName=" not in content:
        return []
    if any("iscsi-init.service" in host.names(folder) for folder in _KEYGEN_UNITS):
        return [Action("iscsi", removable.REMOVE, removable.ISCSI_NAME, None)]
    # this content makes Debian's open-iscsi generate a name at its next start
    return [Action("iscsi", removable.WRITE, removable.ISCSI_NAME, removable.ISCSI_TEXT)]


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
        warnings += _release_journal(host)
    for action in actions:
        warnings += _ONE[action.verb](host, action)
        if action.path == removable.HOST_KEYS_UNIT:
            atomic.write_link(host, removable.HOST_KEYS_WANTED, removable.HOST_KEYS_UNIT)
    if any(action.verb == removable.WRITE for action in actions) and host.systemd_runs:
        warnings += _run(host, ["systemctl", "daemon-reload"])
    os.sync()
    return warnings


def trim(host: Host) -> list[str]:
    """Discard the free blocks of the disks (fstrim), so that an image of them is small; returns warnings."""
    if host.container or not host.find("fstrim"):
        return []
    return _run(host, ["fstrim", "--all"], _TRIM_SECONDS)


def _release_journal(host: Host) -> list[str]:
    """From now on, until the next boot, the journal is kept in memory only."""
    return _run(host, ["journalctl", "--rotate"]) + _run(host, ["journalctl", "--relinquish-var"])


def _run(host: Host, argv: list[str], seconds: float = _RUN_SECONDS) -> list[str]:
    done = host.run(argv, seconds)
    return ["%s: %s" % (" ".join(argv), (done.err or done.out).strip()[-500:])] if done.code else []


def _remove(host: Host, action: Action) -> list[str]:
    return ["%s is left as it is: it is mounted" % path for path in trees.remove(host.path(action.path))]


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
    atomic.write_file(host, action.path, (action.text or "").encode("utf-8"), 0o644)
    return []


_ONE = {removable.REMOVE: _remove, removable.EMPTY: _empty, removable.WRITE: _write}
