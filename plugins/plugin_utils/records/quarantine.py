# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that a person must look at before anything else is done to them: one small file each on the controller."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common import names, private_files
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line


class QuarantineError(Exception):
    """The folder cannot be read or written; the text names the path and the way out."""


@dataclass(frozen=True)
class Entry:
    """Why a machine is left alone, and since when (RFC 3339, UTC)."""

    name: str
    reason: str
    since: str


class Quarantine:
    """The folder of the entries. A damaged entry still keeps its machine in quarantine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def entry(self, name: str) -> Entry | None:
        """The entry of a machine, or nothing."""
        path = self._path(name)
        try:
            found = json_value(path.read_text(encoding="utf-8"))
            return Entry(name, one_line(str(found["reason"]), 1000), one_line(str(found["since"]), 40))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return Entry(name, f"unknown: {path} is damaged", "an unknown time")
        except OSError as exc:
            raise QuarantineError(f"{path} cannot be read ({exc.strerror}); make it readable") from exc

    def add(self, entry: Entry) -> bool:
        """Put a machine in quarantine; an older entry stays as it is. Returns whether there was none."""
        if self.entry(entry.name) is not None:
            return False
        path = self._path(entry.name)
        content = {"machine": entry.name, "reason": entry.reason, "since": entry.since}
        try:
            private_files.write_json(str(path), content, durable=False)
        except OSError as exc:
            raise QuarantineError(f"{path} cannot be written ({exc.strerror}); make {self._folder} writable") from exc
        return True

    def clear(self, name: str) -> None:
        """End the quarantine of a machine."""
        path = self._path(name)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        except OSError as exc:
            raise QuarantineError(f"{path} cannot be removed ({exc.strerror}); remove it by hand") from exc

    def _path(self, name: str) -> Path:
        try:
            names.check_machine_name(name)
        except names.InvalidName as exc:
            raise QuarantineError(f"machine {name!r}: {exc}") from exc
        return self._folder / f"{name}.json"
