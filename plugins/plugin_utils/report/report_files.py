# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report on disk: written while the run lasts, each time whole, so that no older file looks like this run's.

The callback makes a :class:`ReportFiles` in the main process. The worker of Ansible that provisions a fleet is a fork
of it and has a copy of its own, to which it hands each machine as soon as that one is done: a run that is killed leaves
what it knew.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from ansible_collections.kubenode.provision.plugins.module_utils._common.safe_files import replacing
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_object, to_rfc3339

from . import page, results

#: While the run lasts, at most this part of its time is spent on writing the report.
_SHARE = 0.05

#: The files of this run, when its callback is enabled.
_current: ReportFiles | None = None


class ReportFiles:
    """The report of one run, and where it is written."""

    def __init__(
        self, about: Callable[[results.Collected, float], dict[str, Any]], warn: Callable[[str], None], started: float
    ) -> None:
        """``about(data, now)``: what else the report says; ``warn`` shows a warning; ``started``: epoch seconds."""
        self.report = results.Report()
        #: Paths, or empty for what is not written.
        self.json_path = self.page_path = ""
        self._about, self._warn, self._started = about, warn, started
        #: A handler of a signal may write while the thread that it interrupted holds it.
        self._lock = threading.RLock()
        #: Whether a task was begun that makes or boots machines.
        self.is_begun = False
        #: When it may be written again, and whether there is something new to write.
        self._not_before, self._is_new = 0.0, False
        #: When a result came at last.
        self._noted = 0.0
        self._broken: set[str] = set()

    def place(self, json_path: str, page_path: str | None) -> None:
        """Where the files will lie; empty for none, and None for a page beside the JSON file.

        Ansible's own type for paths makes the working directory of an empty text.
        """
        if page_path is None:
            page_path = f"{os.path.splitext(json_path)[0]}.html" if json_path else ""
        self.json_path, self.page_path = (
            os.path.abspath(os.path.expanduser(one)) if one else "" for one in (json_path, page_path)
        )

    def begin(self) -> None:
        """Take the place of an older report before the first machine is touched; the second time, nothing."""
        with self._lock:
            if not self.is_begun:
                self.is_begun = True
                self._put(self.data(time.time(), final=False))

    def note(self, host: str, result: Mapping[str, Any], failed: bool = False) -> None:
        """Take the result of a task, and write when it changed something."""
        with self._lock:
            self._noted = time.time()
            self._is_new = self.report.add(host, result, failed=failed) or self._is_new
        self.catch_up()

    def catch_up(self) -> None:
        """Write what is new, unless that was done a moment ago."""
        with self._lock:
            began = time.time()
            if self._is_new and began >= self._not_before:
                self._put(self.data(began, final=False))
                self._is_new = False
                self._not_before = time.time() + (time.time() - began) / _SHARE

    def take_back(self) -> None:
        """Take what a worker of this run has written and could not return, since it was interrupted."""
        try:
            with open(self.json_path, encoding="utf-8") as file:
                kept = json_object(file.read()) or {}
        except (OSError, ValueError):
            return
        if kept.get("started") != to_rfc3339(self._started):
            return
        # What came of its task meanwhile has no transitions yet: those come with the result.
        newer = kept.get("updated", "") >= times.to_rfc3339(self._noted)
        with self._lock:
            ours = {machine["name"]: len(machine["transitions"]) for machine in self.report.machines}
            further = [one for one in kept["machines"] if newer or len(one["transitions"]) > ours.get(one["name"], -1)]
            machines = [{**one, "msg": one["reason"], "api_calls": 0} for one in further]
            self.report.add("localhost", {"machines": machines})

    def data(self, now: float, *, final: bool, interrupted: bool = False) -> results.ReportData:
        """The whole report as plain data; ``final``: whether the run has ended."""
        data = self.report.as_dict()
        moments = {
            "started": to_rfc3339(self._started),
            "updated": to_rfc3339(now),
            "finished": to_rfc3339(now) if final and not interrupted else None,
        }
        return cast(results.ReportData, {**data, **self._about(data, now), **moments, "interrupted": interrupted})

    def end(self, data: results.ReportData) -> list[str]:
        """Write the report of a run that has ended; returns the paths that were written."""
        with self._lock:
            return self._put(data)

    def _put(self, data: results.ReportData) -> list[str]:
        texts = {
            self.json_path: lambda: json.dumps(data, indent=2, ensure_ascii=False) + "\n",
            self.page_path: lambda: page.page(data, os.path.dirname(self.page_path)),
        }
        return [path for path, text in texts.items() if path and self._to(path, text)]

    def _to(self, path: str, text: Callable[[], str]) -> bool:
        try:
            write(path, text())
        except Exception as error:  # noqa: BLE001 - a report must never take away the result of a machine
            if path not in self._broken:
                self._broken.add(path)
                reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self._warn(f"The provisioning report could not be written to {path}: {reason}")
            return False
        return True


def begin(files: ReportFiles) -> None:
    """``files`` are those of this run."""
    global _current
    _current = files


def is_enabled() -> bool:
    """Whether the callback of this run reports it."""
    return _current is not None


def note(host: str, result: Mapping[str, Any], failed: bool = False) -> None:
    """Put the result of a machine into the report of this run before its task ends; nothing without the callback."""
    if _current is not None:
        _current.note(host, result, failed)


def catch_up() -> None:
    """Write what :func:`note` has left for later."""
    if _current is not None:
        _current.catch_up()


def write(path: str, text: str) -> None:
    """Write a file in one step, readable for all: who reads it sees the old one or the new one, never a part."""
    with replacing(path) as (file, _draft):
        file.write(text.encode("utf-8"))
        os.fchmod(file.fileno(), 0o644)
