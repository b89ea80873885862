# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps two runs of one controller from working on the same machine at the same time."""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._common import names, safe_files
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    from_rfc3339,
    json_value,
    one_line,
    to_rfc3339,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image.run_server import pid_of_run, start_of
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.machine_lock_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Take the locks of all machines, or none."""
        refused = {name: names.machine_error(name) for name in given["names"]}
        if any(refused.values()):
            raise AnsibleActionFail(
                "; ".join(f"machine {name!r:.100}: {text}" for name, text in refused.items() if text)
            )
        locks = Locks(given["lock_dir"])
        run = this_run(pid_of_run())  # a worker ends with its task; the run is its parent
        if given["state"] == "released":
            return self._release(locks, given["names"], run)
        try:
            others = (locks.others if self._task.check_mode else locks.take)(given["names"], run)
        except LockError as exc:
            raise AnsibleActionFail(f"lock_dir: {exc}") from exc
        busy = {name: holder for name, holder in others.items() if holder.lives}
        for name, holder in others.items():
            if name not in busy:
                display.warning(
                    f"{name}: a run on {holder.host} began to work on it at {holder.since}; if that run is still going "
                    "on, the two disturb each other"
                )
        answer = {"changed": False, "failed": False, "machines": sorted(busy)}
        if busy and self._task.check_mode:
            display.warning(_busy_text(busy, given["names"]))
        elif busy:
            answer.update(failed=True, msg=f"{_busy_text(busy, given['names'])}. Nothing was changed")
        return answer

    def _release(self, locks: Locks, machines: list[str], run: Holder) -> dict[str, Any]:
        if not self._task.check_mode:
            try:
                locks.release(machines, run)
            except LockError as exc:
                raise AnsibleActionFail(f"lock_dir: {exc}") from exc
        return {"changed": False, "failed": False, "machines": []}


def _busy_text(busy: Mapping[str, Holder], machines: Collection[str]) -> str:
    """Which runs work on which of these machines, and what to do about it."""
    runs: dict[Holder, list[str]] = {}
    for name in sorted(busy):
        runs.setdefault(busy[name], []).append(name)
    texts = [
        f"{', '.join(theirs)}: another run works on {'it' if len(theirs) == 1 else 'them'} (process {run.pid} of this "
        f"controller, since {run.since})"
        for run, theirs in runs.items()
    ]
    if busy.keys() >= set(machines):
        return f"{'; '.join(texts)}. Wait for its end"
    limit = ":".join(["all", *(f"!{name}" for name in sorted(busy))])
    return f"{'; '.join(texts)}. Wait for its end, or leave {'it' if len(busy) == 1 else 'them'} out: --limit '{limit}'"


# --- which run works on a machine: a small file each on the controller, which counts while the process of the run lives
#
# A run that was killed leaves its files behind; they mean nothing from then on, so the next run goes on at once.


#: Seconds for which the file of another controller is worth a warning: whether its run still lives cannot be seen.
LASTS = 24 * 3600.0
_MOST_BYTES = 4096


class LockError(Exception):
    """The folder cannot be read or written; the text names the path and the way out."""


@dataclass(frozen=True)
class Holder:
    """A run: its process, the start of that process (numbers are used again), where it is, and since when."""

    pid: int
    start: str
    place: str
    since: str

    @property
    def host(self) -> str:
        """The name of its controller."""
        return self.place.split(" ", maxsplit=1)[0]

    @property
    def lives(self) -> bool:
        """Whether it is a process of this host that still runs."""
        return self.place == here() and bool(self.start) and start_of(self.pid) == self.start

    @property
    def unknown(self) -> bool:
        """Whether it is one of another controller (or container), of which nothing can be seen."""
        try:
            age = time.time() - from_rfc3339(self.since)
        except ValueError:
            return False
        return self.place != here() and age < LASTS


def here() -> str:
    """This controller, its boot and its name space of processes."""
    return f"{platform.node() or '?'} {_boot()} {_processes()}".replace("\n", "")


def this_run(pid: int) -> Holder:
    """The run that a process is."""
    return Holder(pid, start_of(pid), here(), to_rfc3339(time.time()))


class Locks:
    """The folder of the files."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def others(self, machines: Sequence[str], run: Holder) -> dict[str, Holder]:
        """The machines that another run may be working on, and that run."""
        found = {name: self._read(name) for name in machines}
        return {
            name: holder
            for name, holder in found.items()
            if holder and (holder.pid, holder.start, holder.place) != (run.pid, run.start, run.place)
            if holder.lives or holder.unknown
        }

    def take(self, machines: Sequence[str], run: Holder) -> dict[str, Holder]:
        """Write down that a run works on these machines, unless one of them has a living holder; who else has them."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                found = self.others(machines, run)
                if not any(holder.lives for holder in found.values()):
                    for name in machines:
                        safe_files.write_json(str(self._path(name)), asdict(run), durable=False)
                return found
            finally:
                os.close(folder)
        except OSError as exc:
            raise LockError(safe_files.unwritable(exc.filename or self._folder, exc, self._folder)) from exc

    def release(self, machines: Sequence[str], run: Holder) -> None:
        """Remove the files of these machines, but not those of another living run."""
        for name in machines:
            holder = self._read(name)
            if holder is None or not holder.lives or (holder.pid, holder.start) == (run.pid, run.start):
                try:
                    self._path(name).unlink(missing_ok=True)
                except OSError as exc:
                    raise LockError(f"{self._path(name)} cannot be removed ({exc.strerror}); remove it") from exc

    def _read(self, name: str) -> Holder | None:
        """What the file of a machine says; a damaged one says nothing."""
        try:
            with self._path(name).open(encoding="utf-8") as file:
                found = json_value(file.read(_MOST_BYTES))
            texts = [one_line(str(found[key]), 200) for key in ("start", "place", "since")]
            return Holder(int(found["pid"]), *texts)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OverflowError):
            return None
        except OSError as exc:
            raise LockError(f"{self._path(name)} cannot be read ({exc.strerror}); make it readable") from exc

    def _path(self, name: str) -> Path:
        return self._folder / f"{names.check_machine_name(name)}.json"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "-"


def _processes() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "-"
