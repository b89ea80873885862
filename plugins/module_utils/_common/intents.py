# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Intents: what a run is about to do to a machine, written down when it arms the rescue, closed when that has an end.

An open intent is what lets an interrupted run go on without asking again. It lies on the controller, and in the rescue
for another controller. It is closed when the new system is proven, when a system is seen, and when a run gives up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import installed, safe_files
from .text import json_object, moment, to_rfc3339

OPEN, DONE, SEEN, GIVEN_UP = "open", "done", "seen", "given up"
#: Seconds after which an open intent no longer counts: a later run may have other plans with the machine.
LASTS = 24 * 3600.0
_MOST_BYTES = 1 << 16


class IntentError(Exception):
    """The intent cannot be read or written; the text names the file and the way out."""


def file_of(folder: str, machine: str) -> str:
    """Where the intent of a machine lies."""
    return os.path.join(folder, f"{machine}.json")


def make(machine: str, installation: str, consent: str, now: float | None = None, **more: Any) -> dict[str, Any]:
    """A new intent. ``more``: server, image_url, command, armed (what identifies this arming) …"""
    return dict(
        {key: value for key, value in more.items() if value},
        machine=machine,
        installation=installation,
        consent=consent,
        state=OPEN,
        armed_at=to_rfc3339(time.time() if now is None else now),
        controller=os.uname().nodename,
    )


def read(path: str) -> dict[str, Any] | None:
    """The intent in a file; None when there is none, or a damaged one."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(_MOST_BYTES))
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    except OSError as error:
        raise IntentError(f"intent {path!r} cannot be read ({error.strerror}); make it readable") from error


def read_open(path: str) -> dict[str, Any] | None:
    """The same, of one that has no end yet."""
    intent = read(path)
    return intent if intent is not None and intent.get("state") == OPEN else None


def parse(text: str) -> dict[str, Any] | None:
    """An intent from text that anybody may have written; None when it is none."""
    content = json_object(text) or {}
    return content if installed.is_installation(content.get("installation")) else None


def is_open(intent: Mapping[str, Any] | None, machine: str, installation: str = "", now: float | None = None) -> bool:
    """Whether it is of this machine (and of this installation, when one is expected) and has no end yet."""
    if not intent or intent.get("machine") != machine or intent.get("state") != OPEN:
        return False
    if installation and intent["installation"] != installation:
        return False
    armed = moment(intent.get("armed_at"))
    return armed is not None and -60 <= (time.time() if now is None else now) - armed <= LASTS


def record_or_kept(
    record: dict[str, Any] | None, kept: Mapping[str, Any] | None, machine: str, uuids: Iterable[str]
) -> dict[str, Any] | None:
    """What a system shows of its installation; where it shows nothing, the intent that ended without proof, if any.

    So a system whose image command wrote no record can be named by the id of its installation. ``uuids``: of its root
    file system; the intent counts only when the image command left one of them behind.
    """
    if kept is None or kept.get("machine") != machine or kept.get("state") not in (SEEN, GIVEN_UP):
        return record
    if installed.installation_of(record):
        return record
    held = kept.get("holds")
    ours = {str(uuid).lower() for uuid in held} if isinstance(held, list) else set()
    if not ours.intersection(str(uuid).lower() for uuid in uuids):
        return record
    return dict(kept, installed_at=kept.get("armed_at"))


def write(path: str, intent: Mapping[str, Any]) -> None:
    """Whole or not at all, readable for us alone."""
    try:
        safe_files.write_json(path, intent, sort_keys=True)
    except OSError as error:
        raise IntentError(f"intent {safe_files.unwritable(path, error)}") from error


def note_written(path: str, written: Sequence[Mapping[str, Any]] | None, succeeded: bool) -> None:
    """Write into an open intent which disks the image command wrote, as `origin.parse_written` returns them.

    ``succeeded``: whether the command was seen to end well.
    """
    intent = read_open(path)
    if intent is not None:
        holds = sorted({uuid for disk in written or () for uuid in disk["holds"]})
        write(path, dict(intent, holds=holds, written=list(written or ()), succeeded=bool(succeeded)))


def forget_success(path: str) -> None:
    """A command is started: how an earlier one of the same installation ended says nothing of the disk any more."""
    intent = read_open(path)
    if intent is not None and "succeeded" in intent:
        write(path, {key: value for key, value in intent.items() if key != "succeeded"})


def seen_to_succeed(intent: Mapping[str, Any] | None, installation: str | None) -> bool | None:
    """Whether the image command of an installation was seen to end well; None for what this controller cannot know."""
    if not installation or not intent:
        return None
    if intent["installation"] != installation:
        return intent.get("replaced_succeeded") if intent.get("replaces") == installation else None
    if intent.get("succeeded") is True or intent.get("state") == DONE:
        return True
    return False if intent.get("begun") else None


def written_of(path: str, installation: str) -> list[dict[str, Any]] | None:
    """The disks that an installation wrote, as far as this controller noted them; None when it did not."""
    intent = read(path) or {}
    written = intent.get("written")
    if intent.get("installation") != installation or not isinstance(written, list) or not written:
        return None
    return written if all(isinstance(disk, dict) for disk in written) else None


def close(path: str, state: str, **more: Any) -> bool:
    """Write down how it ended; returns whether an open one was there."""
    intent = read_open(path)
    if intent is None:
        return False
    write(path, dict(intent, state=state, ended_at=to_rfc3339(time.time()), **more))
    return True
