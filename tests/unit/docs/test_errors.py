# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/errors.md quotes what the code says: each constant part of an error is a text of one and the same file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
#: what a text fills in at run time
_HOLE = re.compile(r"%(?:\([a-z_]+\))?[.0-9]*[a-z]|\{[^{}]*\}")
_JOINED = "\0"


def texts(code: str) -> str:
    """All texts of a module, in each the gaps that it fills as one character."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(_HOLE.sub(_JOINED, node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else _JOINED for part in node.values]
            found.append("".join(parts))
    return "\n".join(found)


def quoted(document: str) -> list[str]:
    """The errors of the tables: their first cells in backticks."""
    return re.findall(r"(?m)^\| `([^`]+)` \|", document)


def parts(error: str) -> list[str]:
    """The constant parts of an error; the ways in which it ends are of the reader."""
    return [part for part in (one.strip(" ;:.,") for one in error.split("…")) if part]


def unsaid(errors: list[str], modules: list[str]) -> list[str]:
    """Errors of which no module says all parts."""
    return [error for error in errors if not any(all(part in text for part in parts(error)) for text in modules)]


def test_every_error_of_the_page_is_said_by_the_code():
    modules = [texts(path.read_text(encoding="utf-8")) for path in (CHECKOUT / "plugins").rglob("*.py")]
    errors = quoted((CHECKOUT / "docs/errors.md").read_text(encoding="utf-8"))
    assert len(errors) > 50
    assert len(set(errors)) == len(errors)
    assert unsaid(errors, modules) == []


def test_an_error_that_no_code_says_is_found():
    module = texts('raise E("disk %s is broken: %s; mend it" % (a, b))\nf"it has {n} legs"')
    assert unsaid(["disk … is broken: …", "it has … legs", "disk … is whole", "it has arms"], [module]) == [
        "disk … is whole",
        "it has arms",
    ]
