# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Surveys of AWX, made of the specification of the playbooks' variables (pure).

An answer becomes an extra variable, which counts more than any inventory. So no question has a default, and one that is
not answered sets nothing. An answer is a text, a number or a list of choices; what is a dictionary, a list of
dictionaries or a word of consent is no question: it belongs in the inventory, or in the extra variables of a launch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TypedDict

from . import specification
from .specification import Variable


class Question(TypedDict, total=False):
    """A question as AWX takes it."""

    variable: str
    question_name: str
    question_description: str
    type: str
    required: bool
    choices: list[str]
    min: int
    max: int


class Survey(TypedDict):
    """The option ``survey_spec`` of awx.awx.job_template."""

    name: str
    description: str
    spec: list[Question]


#: AWX takes no longer answer to a question of text.
_LONGEST = 1024
_MOST = 2**31 - 1
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def survey(playbook: str, names: Iterable[str] = (), required: Collection[str] = ()) -> Survey:
    """The survey of a playbook, what must be answered first.

    ``names``: the variables that are asked for, in this order; all that can be asked for without them. ``required``:
    those that must be answered. Raises ValueError for a playbook without variables, and for a name that it does not
    take or that no question can give.
    """
    if playbook not in specification.playbooks():
        raise ValueError(
            f"survey: {playbook!r} takes no variables; use one of {', '.join(sorted(specification.playbooks()))}"
        )
    taken = {one.name: one for one in specification.taken_by(playbook)}
    names = list(names)
    wrong = [name for name in [*names, *required] if name not in taken or not _kind(taken[name])]
    if wrong:
        raise ValueError(f"survey: {', '.join(wrong)}: no question of {playbook} can give it")
    asked = [taken[name] for name in names] or [one for one in taken.values() if _kind(one)]
    asked = sorted(asked, key=lambda one: one.name not in required)
    return {
        "name": f"kubenode.provision.{playbook}",
        "description": "What is not answered stays as the inventory has it.",
        "spec": [_question(one, playbook, one.name in required) for one in asked],
    }


def _kind(variable: Variable) -> str:
    """The type of a question, empty for a variable that no question can give."""
    if variable.type == "list" and variable.elements == "str":
        return "multiselect" if variable.choices else "text"
    if variable.type == "bool" or variable.choices:
        return "multiplechoice"
    if variable.secret:
        return "password" if variable.type == "str" else ""
    return {"int": "integer", "float": "float", "str": "text", "path": "text"}.get(variable.type, "")


def _question(variable: Variable, playbook: str, required: bool) -> Question:
    kind = _kind(variable)
    found: Question = {
        "variable": variable.name,
        "question_name": variable.name.removeprefix("kubenode_").replace("_", " "),
        "question_description": _description(variable, playbook),
        "type": kind,
        "required": required,
    }
    if kind in ("multiplechoice", "multiselect"):
        found["choices"] = [str(choice) for choice in variable.choices] or ["true", "false"]
    if kind in ("text", "password"):
        found["min"], found["max"] = 1, _LONGEST
    if kind == "integer":
        found["min"], found["max"] = 0, _MOST
    return found


def _description(variable: Variable, playbook: str) -> str:
    text = plain(variable.says)
    if variable.type == "list" and not variable.choices:
        text += " (separated by commas)"
    default = variable.defaults.get(playbook, variable.default)
    if variable.default_says:
        text += f"; default: {plain(variable.default_says)}"
    elif default not in (None, [], {}):
        shown = str(default).lower() if isinstance(default, bool) else default
        text += f"; default: {', '.join(map(str, shown)) if isinstance(shown, list) else shown}"
    return text


def plain(text: str) -> str:
    """A text of the specification without its Markdown."""
    return _LINK.sub(r"\1", text).replace("`", "")
