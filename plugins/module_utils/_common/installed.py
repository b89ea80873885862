# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The installed record of a system, and what it proves (pure).

Every installation has an id of 128 random bits, which the controller makes when it arms the rescue. What is written
carries it in its record, so that a system shows which installation it is of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

RECORD = "/etc/kubenode/installed.json"
#: The keys of a record, all of them strings.
KEYS = (
    "machine",
    "installation",
    "image_url",
    "image_digest",
    "command",
    "consent",
    "installed_at",
    "verified_at",
    "proof",
)
#: Hexadecimal digits by which people name an installation.
SHORT = 8

_ID = re.compile(r"[0-9a-f]{32}\Z")


class Drift(TypedDict):
    """Something that an installed system runs, and something else is asked for."""

    what: str
    runs: str
    #: When the system was installed, as its record says; empty when it does not.
    since: str
    wanted: str


def new_installation() -> str:
    return os.urandom(16).hex()


def is_installation(text: object) -> bool:
    return isinstance(text, str) and bool(_ID.match(text))


def installation_of(record: Mapping[str, Any] | None) -> str:
    """The id in a record; empty when there is none."""
    found = (record or {}).get("installation")
    return str(found) if is_installation(found) else ""


def short(installation: str) -> str:
    """As people read and name it."""
    return installation[:SHORT]


def is_proven(record: Mapping[str, Any] | None, machine: str, installation: str = "") -> bool:
    """Whether a record says that this installation of this machine was verified.

    Without ``installation`` (it is not known which one to expect), the record's own statement counts.
    """
    found = installation_of(record)
    return bool(
        found
        and (record or {}).get("machine") == machine
        and (record or {}).get("verified_at")
        and found == (installation or found)
    )


def describe(record: Mapping[str, Any] | None) -> str:
    """One clause on what a record says."""
    record = record or {}
    text = f"installation {short(installation_of(record)) or 'without an id'}"
    text += f" of machine '{record.get('machine', '?')}'"
    if record.get("image_url"):
        text += f", {record['image_url']}"
    if record.get("installed_at"):
        text += f", installed at {record['installed_at']}"
    return text


def drift(record: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> list[Drift]:
    """What runs differs from what is asked for; what is not known does not differ."""
    since = str((record or {}).get("installed_at") or "")
    return [
        {"what": what, "runs": str(runs), "since": since, "wanted": " or ".join(_several(asked))}
        for what, runs, asked in ((what, (record or {}).get(what), (wanted or {}).get(what)) for what in _WANTED)
        if runs and asked and str(runs) not in _several(asked)
    ]


def _several(asked: object) -> list[str]:
    """One value, or each of those that will do."""
    return [str(one).strip() for one in (asked if isinstance(asked, (list, tuple)) else [asked])]


_WANTED = ("image_url", "image_digest", "command", "server_type", "location")


def drift_in_words(differences: Sequence[Drift], since: str | None = "") -> str:
    """One line for people; empty when nothing differs. ``since``: where the differences do not say it."""
    if not differences:
        return ""
    since = differences[0].get("since") or since
    runs = ", ".join(f"{one['what']} {one['runs']}" for one in differences)
    asked = ", ".join(f"{one['what']} {one['wanted']}" for one in differences)
    runs += f" since {since}" if since else ""
    return f"runs {runs}, asked for {asked}; kubenode_reinstall writes it"
