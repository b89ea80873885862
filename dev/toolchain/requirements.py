# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How locks are written: requirements/NAME.txt pins the packages of an environment, hashes.txt has the hashes of all.

Locks that others read (pip, the build of a container) are complete: their hashes are beside the pins, and only there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .paths import REQUIREMENTS

#: locks with all of their hashes, for those who do not read hashes.txt
COMPLETE = ("image-server", "bundle", "uv")
HASHES = "hashes"

#: a pin such as ``name==1.2 ; python_version < "3.12"`` → its lines of hashes, each after a backslash
Lock = dict[str, str]

_PIN = re.compile(r"^([a-z0-9][^\\\n]*==[^\\\n]+?)((?: \\\n    --hash=\S+)*)$", re.M)


def parsed(text: str) -> Lock:
    """The pins of a lock."""
    return {match[1]: match[2] for match in _PIN.finditer(text)}


def written(lock: Lock) -> str:
    """The text of a lock."""
    return "# made by dev/lock\n" + "".join(pin + hashes + "\n" for pin, hashes in lock.items())


def whole(name: str, folder: Path = REQUIREMENTS) -> Lock:
    """A lock with the hashes of every pin; installers refuse a pin for which none are found."""
    known = {_release(pin): hashes for other in (HASHES, *COMPLETE) for pin, hashes in _read(folder, other).items()}
    return {pin: hashes or known.get(_release(pin), "") for pin, hashes in _read(folder, name).items()}


def split(locks: Mapping[str, Lock]) -> dict[str, Lock]:
    """What to write for whole locks, the hashes among it."""
    result = {name: lock if name in COMPLETE else dict.fromkeys(lock, "") for name, lock in locks.items()}
    beside = {_release(pin) for name in COMPLETE for pin in locks.get(name, ())}
    known = {_release(pin): hashes for lock in locks.values() for pin, hashes in lock.items()}
    return {**result, HASHES: {pin: known[pin] for pin in sorted(known.keys() - beside)}}


def _read(folder: Path, name: str) -> Lock:
    path = folder / (name + ".txt")
    return parsed(path.read_text(encoding="ascii")) if path.exists() else {}


def _release(pin: str) -> str:
    """Name and version, without what follows."""
    return pin.partition(" ")[0]
