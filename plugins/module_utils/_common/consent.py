# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What these variables of a user permit: ``reinstall``, ``wipe``, ``delete``, ``release`` (pure).

Each counts once, for one installation. A bare name means "the system that is there". The installation that it allowed
uses it up, as its record says; left in an inventory it means nothing more. ``delete`` and ``release`` install nothing,
so nothing uses them up. A name with the id of an installation says which one goes, and nothing else.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from . import installed

#: What allows a command to write, as the record keeps it.
FRESH, EMPTY, REINSTALL, WIPE, RELEASE = "fresh", "empty", "reinstall", "wipe", "release"
KINDS = (FRESH, EMPTY, REINSTALL, WIPE, RELEASE)


#: A name and the id of an installation.
_PAIR = re.compile(r"([^\s{},:]+)\s*:\s*([^\s{},:]+)")


class Words:
    """One of these variables: a list of names, or a dictionary of names and the ids of what may go."""

    def __init__(self, variable: str, given: object) -> None:
        self.variable = variable
        self.findings: list[str] = []
        self._ids: dict[str, str] = {}
        if isinstance(given, dict):
            for name, value in given.items():
                self._take(str(name), value)
        elif isinstance(given, (list, tuple)):
            for name in given:
                if isinstance(name, str) and name.strip():
                    self._ids[name] = ""
                else:
                    self.findings.append(
                        f"{variable}: {name!r} is no name; write a list of names, such as [a, b], "
                        "or leave the entry out"
                    )
        elif given is not None:
            self.findings.append(
                f"{variable}: {given!r} is neither a list of names nor a dictionary of names and installations; "
                f"write {extra_var(variable, _meant(given) or ['NAME'])}"
            )

    def _take(self, name: str, value: object) -> None:
        text = str(value or "").strip().lower()
        if len(text) < installed.SHORT or text.strip("0123456789abcdef"):
            self.findings.append(
                f"{self.variable}: {name}: {value!r} is no id of an installation; "
                f"give at least its first {installed.SHORT} hexadecimal digits"
            )
        self._ids[name] = text

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def names(self, name: str) -> bool:
        """Whether the user named this machine at all."""
        return name in self._ids

    def names_installation(self, name: str, record: Mapping[str, Any] | None) -> bool:
        """Whether the user named the very installation of this record."""
        return bool(self._ids.get(name)) and self.covers(name, record)

    def covers(self, name: str, record: Mapping[str, Any] | None) -> bool:
        """Whether it allows to give up the system (running or on the disk) of this record; ``None`` for no record."""
        if name not in self._ids:
            return False
        wanted = self._ids[name]
        if wanted:
            return installed.installation_of(record).startswith(wanted)
        return not self.used(record)

    def used(self, record: Mapping[str, Any] | None) -> bool:
        """Whether an installation was allowed by this very entry."""
        return self.variable in str((record or {}).get("consent") or "").split("+")

    def used_by(self, name: str, intent: Mapping[str, Any] | None) -> str:
        """How a closed intent has used up this permission, as far as this controller knows; empty when it has not."""
        if name not in self._ids or not intent or intent.get("machine") != name or intent.get("state") == "open":
            return ""
        if intent.get("state") != "done" and not intent.get("begun"):
            # Nothing was written for it.
            return ""
        known = dict(intent, installed_at=intent.get("armed_at"))
        return "" if self.covers(name, known) else self.why_not(name, known)

    def why_not(self, name: str, record: Mapping[str, Any] | None) -> str:
        """A text for the user: why a given name allows nothing."""
        running = installed.short(installed.installation_of(record)) or "one without an id"
        since = (record or {}).get("installed_at")
        if self._ids.get(name):
            named = installed.short(self._ids[name])
            return f"kubenode_{self.variable} names installation {named} of {name}, but {running} is there"
        used = f" at {since}" if since else ""
        return (
            f"kubenode_{self.variable} names {name}, but this was used{used} for installation {running}, which is "
            f"there; to write it again: {extra_var(self.variable, {name: running})}"
        )


def _meant(given: object) -> dict[str, str] | list[str]:
    """What a text that should have been a list or a dictionary names."""
    text = re.sub(r"""["']""", "", given.strip()) if isinstance(given, str) else ""
    if text.startswith("{"):
        return dict(_PAIR.findall(text))
    return re.sub(r"[][,]", " ", text).split()


def extra_var(variable: str, value: object) -> str:
    """The option of ansible-playbook that gives a variable ``kubenode_*`` for one run, as a shell takes it."""
    return f"-e {shlex.quote(json.dumps({'kubenode_' + variable: value}))}"


def joined(*kinds: str) -> str:
    """As a record keeps them."""
    return "+".join(sorted({kind for kind in kinds if kind in KINDS}, key=KINDS.index))
