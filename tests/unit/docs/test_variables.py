# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of variables in docs are those of the specification; KUBENODE_TABLES=write writes them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import specification
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight.specification import Variable

DOCS = Path(__file__).resolve().parents[3] / "docs"
#: Between these two lines. The first one names the playbooks of the page; ``rows``: another page has their variables.
_PART = re.compile(
    r"<!-- (variables|rows) of ([a-z_ ]+); see CONTRIBUTING.md -->\n(.*?)(?=<!-- end of variables -->)", re.DOTALL
)
PAGES = sorted({one.page for one in specification.variables().values()})
_TYPES = {"int": "number", "str": "text", "bool": "`true`, `false`", "dict": "dictionary", "raw": "", "path": "path"}


def table(page: str, playbooks: list[str], whole: bool) -> str:
    """The rows of a page, and the names of those that another page explains."""
    taken = [one for one in specification.variables().values() if {*playbooks} & {*one.playbooks}]
    rows = [row(one, page, playbooks) for one in taken if one.page == page or page in one.pages]
    missing = {one.name for one in specification.variables().values() if one.page == page} - {one.name for one in taken}
    assert not missing, f"docs/{page}.md names no playbook that takes {missing}"
    lines = ["", "| variable | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    for other in PAGES if whole else ():
        names = [named(one, playbooks) for one in taken if one.page == other != page and page not in one.pages]
        if names:
            what = "" if len(playbooks) == 1 else ", each in the playbooks that take it"
            lines += [f"As in [{other}.md]({other}.md#variables){what}: {', '.join(names)}.", ""]
    return "\n".join([*lines, ""])


def row(one: Variable, page: str, playbooks: list[str]) -> str:
    here = [playbook for playbook in playbooks if playbook in one.playbooks]
    some = "" if len(here) == len(playbooks) else " or ".join(f"`{playbook}`" for playbook in here) + ": "
    says = one.pages.get(page, one.says)
    if {*one.once} & {*playbooks}:
        says += ". The same for all machines of a run"
    if one.environment:
        says += f". Else from the environment: `{one.environment}`"
    kind = _TYPES.get(one.type, "list")
    if one.choices:
        kind = ("list of " if one.type == "list" else "") + ", ".join(f"`{choice}`" for choice in one.choices)
    return re.sub(rf"\]\({page}\.md#", "](#", f"| `{one.name}` | {kind} | {default(one, here)} | {some}{says} |")


def named(one: Variable, playbooks: list[str]) -> str:
    """A variable that another page explains, with its default where that is another one here."""
    here = [playbook for playbook in playbooks if playbook in one.playbooks]
    return f"`{one.name}`" + (f" (default {default(one, here)})" if {*one.defaults} & {*here} else "")


def default(one: Variable, playbooks: list[str]) -> str:
    if one.default_says:
        return one.default_says
    values = {playbook: one.defaults.get(playbook, one.default) for playbook in playbooks}
    texts = {
        playbook: "required" if playbook in one.required else "none" if value is None else f"`{shown(value)}`"
        for playbook, value in values.items()
    }
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"`{playbook}`: {text}" for playbook, text in texts.items())


def shown(value: Any) -> str:
    """As YAML in one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_a_page_is_that_of_the_specification(page):
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    found = _PART.search(text)
    assert found, f"docs/{page}.md has no table of variables"
    wanted = table(page, found[2].split(), found[1] == "variables")
    if os.environ.get("KUBENODE_TABLES") == "write":
        path.write_text(text[: found.start(3)] + wanted + text[found.end(3) :], encoding="utf-8")
        return
    assert found[3] == wanted, "write it: KUBENODE_TABLES=write dev/run pytest tests/unit/docs/test_variables.py"


def test_every_playbook_has_a_page_with_all_of_its_variables():
    texts = [(DOCS / f"{page}.md").read_text(encoding="utf-8") for page in PAGES]
    described = [
        name
        for text in texts
        for kind, names, _table in _PART.findall(text)
        if kind == "variables"
        for name in names.split()
    ]
    assert sorted(described) == sorted(specification.playbooks())
