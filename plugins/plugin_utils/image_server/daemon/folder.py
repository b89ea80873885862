# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder that is looked at again and again: what is in it, and which changes are over and can be acted on."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Signature, signature_of
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError

QUIET = 1.0  # seconds without a write after which a change counts as over


def scan(folder: str) -> dict[str, Signature]:
    """Every file by its name; hidden ones, backups of editors, folders and devices are none.

    Links are followed, as a mounted ConfigMap consists of them. OSError when the folder cannot be read.
    """
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith("~"):
                continue
            try:
                here = entry.stat()
            except OSError as error:
                if error.errno == errno.ENOENT and not entry.is_symlink():
                    continue  # it went away between the two
                found[entry.name] = Signature(0, 0, 0, 0, error.errno or -1)  # reading it will say why
                continue
            if stat.S_ISREG(here.st_mode):
                found[entry.name] = signature_of(here)
    return found


def read(path: str, most: int) -> bytes:
    """A file's content, at most so many bytes of it; never waits for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ImageError("it is no file")
            data = file.read(most + 1)
    except OSError as error:
        raise ImageError(f"it cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise ImageError(f"it has more than {most} bytes, which is the most")
    return data


def read_text(path: str, most: int) -> str:
    """The same as text."""
    try:
        return read(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImageError(f"it is no text in UTF-8 (byte {error.start})") from error


@dataclass(frozen=True)
class State:
    """What some files of one thing are now."""

    __slots__ = ("digest", "written")
    digest: bytes
    written: float  # when the newest was last written to, seconds since 1970


def state(files: Iterable[tuple[str, Signature]]) -> State:
    """The state of these files."""
    there = sorted(files)
    digest = hashlib.sha256(repr(there).encode("utf-8", "surrogatepass")).digest()[:16]
    return State(digest, max((signature.ctime_ns for _name, signature in there), default=0) / 1e9)


@dataclass
class Changes:
    """Which things changed or went away, returned once, when the change is over.

    A change is over when nothing was written for a second, or when two updates saw the same; what is missing in one
    update only was just being replaced. The first update takes everything as it is.
    """

    _taken: dict[str, bytes] = field(default_factory=dict)
    _seen: dict[str, bytes] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    _begun: bool = False

    @property
    def waits(self) -> bool:
        """Whether the next update may return something although nothing happens until then."""
        return not self._begun or bool(self._seen or self._missing)

    def update(self, states: Mapping[str, State]) -> tuple[list[str], list[str]]:
        """The keys that are new or changed, and those that are gone."""
        changed, seen, now = [], {}, time.time()
        for key, found in states.items():
            if self._taken.get(key) == found.digest:
                continue
            quiet = not 0 <= now - found.written < QUIET
            if quiet or not self._begun or self._seen.get(key) == found.digest:
                self._taken[key] = found.digest
                changed.append(key)
            else:
                seen[key] = found.digest
        missing = {key for key in self._taken if key not in states}
        gone = sorted(missing & self._missing)
        for key in gone:
            del self._taken[key]
        self._seen, self._missing, self._begun = seen, missing - set(gone), True
        return changed, gone
