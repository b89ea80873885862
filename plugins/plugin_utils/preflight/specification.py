# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one specification of the playbooks' variables: variables/PAGE.yml, where docs/PAGE.md has their table.

From it come the checks of names, kinds and playbooks, the options of modules that variables become, the names in
messages, the tables in docs and the surveys of AWX.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from . import site

_FILES = Path(__file__).parent / "variables"
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Variable:
    """One variable, with the keys of its entry in variables/PAGE.yml."""

    name: str
    #: The page of docs that has it in its table.
    page: str
    #: One sentence for people, as Markdown.
    says: str
    #: As in an argument spec of Ansible; ``raw`` where something else looks at the value. ``path``: of the controller.
    type: str
    #: The playbooks that take it.
    playbooks: tuple[str, ...]
    elements: str = ""
    choices: tuple[Any, ...] = ()
    #: The default, those of playbooks that have another one, or words where no value says it.
    default: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    default_says: str = ""
    #: Never shown in a message.
    secret: bool = False
    #: An environment variable that is read where the variable is not set.
    environment: str = ""
    #: Playbooks that cannot do without.
    required: tuple[str, ...] = ()
    #: Module → the key of each of its machines that it becomes (preflight/machine_specs.py).
    machine: Mapping[str, str] = field(default_factory=dict)
    #: Step of the SSH phase → the option that it becomes (rescue_run/install_plan.py).
    step: Mapping[str, str] = field(default_factory=dict)
    #: Module → the option that a task makes of it.
    option: Mapping[str, str] = field(default_factory=dict)
    #: What is taken in the place of a variable that is not set.
    fallback: str = ""
    #: Playbooks that read it once for the whole run.
    once: tuple[str, ...] = ()
    #: Playbooks that do not take it although one could think so, and what to use there: a warning.
    instead: Mapping[str, str] = field(default_factory=dict)
    #: Playbooks that a host with this variable is not for, and why: an error.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: Other pages in whose tables it stands with another meaning.
    pages: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> dict[str, Any]:
        """As an option of an argument spec."""
        found: dict[str, Any] = {"type": self.type}
        if self.elements and self.elements != "raw":
            found["elements"] = self.elements
        if self.choices:
            found["choices"] = list(self.choices)
        if self.secret:
            found["no_log"] = True
        return found


@functools.cache
def variables() -> dict[str, Variable]:
    """Every variable by its name, in the order of the files and their entries."""
    found: dict[str, Variable] = {}
    for path in sorted(_FILES.glob("*.yml")):
        entries = yaml.load(path.read_text(encoding="utf-8"), _FAST_LOADER)["variables"]
        for name, entry in entries.items():
            found[name] = _variable(name, path.stem, dict(entry))
    return found


def _variable(name: str, page: str, entry: dict[str, Any]) -> Variable:
    playbooks = tuple(entry.pop("playbooks"))
    once = entry.pop("once", ())
    # It makes machines of each kind by the tasks of these playbooks, and reads once what all of them read once.
    if once is True:
        once = (*playbooks, *([site.SITE] if set(site.WAYS) <= {*playbooks} else []))
    if set(site.WAYS) & {*playbooks} and site.SITE not in playbooks:
        playbooks = (*playbooks, site.SITE)
    return Variable(
        name=name,
        page=page,
        playbooks=playbooks,
        once=tuple(once),
        choices=tuple(entry.pop("choices", ())),
        required=tuple(entry.pop("required", ())),
        fallback=entry.pop("else", ""),
        **entry,
    )


@functools.cache
def of_machines(module: str) -> dict[str, tuple[str, ...]]:
    """Key of each machine that a module takes → the variables that may hold it, the first one set wins."""
    found: dict[str, tuple[str, ...]] = {}
    for one in variables().values():
        key = one.machine.get(module)
        if key:
            found[key] = (*found.get(key, ()), one.name, *([one.fallback] if one.fallback else []))
    return found


@functools.cache
def of_step(step: str) -> dict[str, str]:
    """Option of a step of the SSH phase → the variable that holds it."""
    return {one.step[step]: one.name for one in variables().values() if step in one.step}


@functools.cache
def of_options(module: str) -> dict[str, str]:
    """Option that a task gives to a module → the variable that it is made of."""
    return {one.option[module]: one.name for one in variables().values() if module in one.option}


@functools.cache
def taken_by(playbook: str) -> tuple[Variable, ...]:
    """The variables that a playbook takes."""
    return tuple(one for one in variables().values() if playbook in one.playbooks)


@functools.cache
def playbooks() -> frozenset[str]:
    """Every playbook that takes a variable."""
    return frozenset(playbook for one in variables().values() for playbook in one.playbooks)
