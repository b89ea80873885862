# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Does what plan.actions() found. A rerun goes on where an interruption ended."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable

from ..._common import mounts, trees
from ..machine import files
from ..machine.host import Host
from . import removable
from .plan import Action

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
            files.write_link(host, removable.HOST_KEYS_WANTED, removable.HOST_KEYS_UNIT)
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
    files.write_file(host, action.path, (action.text or "").encode("utf-8"), 0o644)
    return []


_ONE = {removable.REMOVE: _remove, removable.EMPTY: _empty, removable.WRITE: _write}
