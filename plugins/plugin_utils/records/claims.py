# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims: which disks of a machine a run has begun to write, so that a later run may write them again without asking.

A claim is made when the guards have passed, and released when the new system has proven itself. It counts from the
moment when a disk may have been changed, and for a day: before and after, the disks may hold something of worth that
this run has not seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import intents, safe_files, text
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_object, json_value

_MOST_BYTES = 1 << 20

#: A program was started that may have changed a disk since; it will say so when it ends.
MAYBE = "maybe"

#: Serial and WWN, as the machine's kernel reports them.
Identity = tuple[str, str]


class ClaimError(Exception):
    """The claim cannot be read, written or removed; the text names the file and the way out."""


def default_file(name: str) -> str:
    """Where the claim of a machine lies by default."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "kubenode-provision", "claims", f"{name}.json")


def identities(disks: Iterable[Mapping[str, Any]]) -> frozenset[Identity]:
    """The identities of these disks; nothing when one of them has neither serial nor WWN, or two are the same."""
    found = [(str(disk.get("serial") or ""), str(disk.get("wwn") or "").lower()) for disk in disks]
    if ("", "") in found or len(set(found)) != len(found):
        return frozenset()
    return frozenset(found)


def claim(
    path: str,
    name: str,
    disks: Iterable[Mapping[str, Any]],
    now: Callable[[], float] = time.time,
    begun: bool | str = True,
) -> bool:
    """Write down that this run may write these disks of the machine. Returns whether they can be claimed at all.

    ``begun``: whether a disk may have been changed already; a claim that is not begun allows no later run anything.
    """
    found = identities(disks)
    if not found:
        release(path)
        return False
    content: dict[str, Any] = {
        **{key: value for key, value in _others(path).items() if key != "begun"},
        "machine": name,
        "disks": [{"serial": serial, "wwn": wwn} for serial, wwn in sorted(found)],
        "at": text.to_rfc3339(now()),
        "begun": begun,
    }
    try:
        safe_files.write_json(path, content)
    except OSError as exc:
        raise ClaimError(f"claim_file {safe_files.unwritable(path, exc)}") from exc
    return True


def _content(path: str) -> dict[str, Any]:
    try:
        return json_object(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError):
        return {}


def _others(path: str) -> dict[str, Any]:
    """What an open intent in the same file says besides."""
    found = _content(path)
    return found if found.get("state") == intents.OPEN else {}


def claimed(path: str, name: str, now: Callable[[], float] = time.time) -> frozenset[Identity]:
    """The disks that an unfinished run of the last day claimed for this machine; a damaged claim is none."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json_value(file.read(_MOST_BYTES))
        age = now() - text.from_rfc3339(content["at"])
        if content.get("state", intents.OPEN) != intents.OPEN:
            # A system was seen since, or proven.
            return frozenset()
        if content["machine"] != name or not -60 <= age <= intents.LASTS or content.get("begun") not in (True, MAYBE):
            return frozenset()
        return identities(content["disks"])
    except (FileNotFoundError, KeyError, TypeError, ValueError, AttributeError):
        return frozenset()
    except OSError as exc:
        raise ClaimError(f"claim_file {path!r} cannot be read ({exc.strerror}); make it readable") from exc


def covers(path: str, name: str, disks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether exactly these disks are claimed for this machine."""
    found = identities(disks)
    return bool(found) and found == claimed(path, name)


def release(path: str) -> bool:
    """The machine is finished: forget the claim. Returns whether there was one."""
    try:
        rest = {key: value for key, value in _others(path).items() if key not in ("disks", "at", "begun")}
        if "installation" in rest:
            intents.write(path, rest)
            return True
        os.unlink(path)
    except intents.IntentError as exc:
        raise ClaimError(str(exc)) from exc
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise ClaimError(f"claim_file {path!r} cannot be removed ({exc.strerror}); remove it by hand") from exc
    return True


def begun(path: str) -> Any:
    """Whether a disk was changed by a run with this claim: True, False or MAYBE."""
    return _content(path).get("begun", False)


def note_begun(path: str, surely: bool = True) -> Any:
    """Write into an open intent that a disk is, or may be, changed from now on; returns the entry before."""
    content, before = _others(path), begun(path)
    if content and before is not True:
        _note(path, content, True if surely else MAYBE)
    return before


def take_back(path: str, before: Any) -> None:
    """Undo `note_begun`, which returned ``before``: no disk was changed since."""
    content = _others(path)
    if content and begun(path) == MAYBE:
        _note(path, content, before)


def _note(path: str, content: dict[str, Any], begun: Any) -> None:
    try:
        intents.write(path, {**content, "begun": begun})
    except intents.IntentError as exc:
        raise ClaimError(str(exc)) from exc


def is_of_intent(path: str) -> bool:
    """Whether the file is an open intent, into which a start is written."""
    return "installation" in _others(path)


def release_unbegun(path: str, maybe: bool = False) -> bool:
    """The run was refused before a disk was changed: forget what it claimed. A claim that is begun stays.

    ``maybe``: the program that may have changed a disk has said that it did not.
    """
    return begun(path) in ((False, MAYBE) if maybe else (False,)) and release(path)
