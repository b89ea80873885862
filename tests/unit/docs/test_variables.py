# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from a specification: tables in docs, defaults of roles; KUBENODE_TABLES=write writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import specification
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight.specification import Variable
from tests.unit.docs.plugin_specs import compare

DOCS = Path(__file__).resolve().parents[3] / "docs"
#: Between these two lines. The first one names the playbooks of the page; ``rows``: another page has their variables.
_PART = re.compile(
    r"<!-- (variables|rows) of ([a-z_ ]+); see CONTRIBUTING.md -->\n(.*?)(?=<!-- end of variables -->)", re.DOTALL
)
PAGES = sorted({one.page for one in specification.variables().values()})
#: A part of the variables of a role: from one that the first line names to the one of the next part.
_OPTIONS = re.compile(
    r"<!-- options of ([a-z_]+) from ([a-z0-9_]+); see CONTRIBUTING.md -->\n(.*?)(?=<!-- end of options -->)", re.DOTALL
)
_TYPES = {"int": "number", "str": "text", "bool": "`true`, `false`", "dict": "dictionary", "path": "path"}


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
    kind = one.type_says or _TYPES.get(one.type, "list")
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
    compare(path, text[: found.start(3)] + wanted + text[found.end(3) :])


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


# --- the variables of a role


def option_rows(name: str, option: dict[str, Any]) -> list[str]:
    """The row of a variable of a role, and those of the fields it has."""
    says, value = meaning(option["description"]), option.get("default")
    choices = [f"`{choice}`" for choice in option.get("choices", ()) if choice]
    if any(choice not in says for choice in choices):
        says += f" ({', '.join(choices)})"
    rows = [f"| `{name}` | {'–' if value in (None, '') else f'`{shown(value)}`'} | {says} |"]
    below = name + ("[]" if option["type"] == "list" else "")
    for field, inner in option.get("options", {}).items():
        rows += option_rows(f"{below}.{field}", inner)
    return rows


def meaning(description: list[str]) -> str:
    """The first paragraph of a description, as Markdown; ansible-doc shows the others, too."""
    return re.sub(r"\b[CMOV]\(((?:[^()]|\([^()]*\))*)\)", r"`\1`", description[0]).removesuffix(".").replace("|", "\\|")


def with_options(text: str, role: str) -> str:
    """A page whose tables have all variables of a role, but for the switches of steps, which the text explains."""
    listed = {name: one for name, one in role_specs.variables(role).items() if not name.startswith(role + "_manage_")}
    names, parts = list(listed), list(_OPTIONS.finditer(text))
    starts = [names.index(part[2]) for part in parts]
    assert starts[:1] == [0], "the first table begins with the first variable"
    assert starts == sorted(starts), "tables begin in the order of the specs"
    for part, start, end in reversed(list(zip(parts, starts, [*starts[1:], len(names)], strict=True))):
        rows = [row for name in names[start:end] for row in option_rows(name, listed[name])]
        made = "\n".join(["", "| variable | default | |", "|---|---|---|", *rows, "", ""])
        text = text[: part.start(3)] + made + text[part.end(3) :]
    return text


def with_defaults(text: str, role: str) -> str:
    """A role's defaults/main.yml: the defaults of its specs, each after the comment that it had."""
    parts = re.split(r"^([a-z0-9_]+):.*\n(?:[ -].*\n)*", text, flags=re.MULTILINE)
    before = dict(zip(parts[1::2], parts[::2], strict=False))
    known = {name: option["default"] for name, option in role_specs.variables(role).items() if "default" in option}
    lost = [before[name].strip() for name in before.keys() - known if before[name].strip()]
    assert not lost, f"the first variable below this comment is gone: {lost}"
    return "".join(before.get(name, "") + as_yaml(name, value) for name, value in known.items())


def as_yaml(name: str, value: Any) -> str:
    """Lists and dictionaries in lines of their own, unless they are empty."""
    lines = yaml.safe_dump({name: value}, allow_unicode=True, sort_keys=False, width=1000).splitlines()
    return "".join(re.sub("^- ", "  - ", line) + "\n" for line in lines)


@pytest.mark.parametrize("role", ["base", "join"])
def test_the_tables_of_a_role_are_its_specs(role):
    path = DOCS / f"{role}.md"
    compare(path, with_options(path.read_text(encoding="utf-8"), role))


@pytest.mark.parametrize("role", sorted(path.name for path in role_specs.ROLES.iterdir()))
def test_the_defaults_of_a_role_are_its_specs(role):
    path = role_specs.ROLES / role / "defaults/main.yml"
    compare(path, with_defaults(path.read_text(encoding="utf-8"), role))


def test_what_a_new_variable_becomes(monkeypatch):
    specs = {
        "r_a": {"type": "str", "default": "", "description": ["See (O(r_b=f(x))). V(1) | more.", "Else."]},
        "r_new": {"type": "list", "default": ["x"], "choices": ["x", "y"], "description": ["New."],
                  "options": {"url": {"type": "str", "description": ["Where."]}}},
        "r_b": {"type": "str", "default": "off", "description": ["Last."]},
        "r_manage_c": {"type": "bool", "default": True, "description": ["A switch."]},
    }  # fmt: skip
    monkeypatch.setattr(role_specs, "variables", lambda _role: specs)
    page = "<!-- options of r from {}; see CONTRIBUTING.md -->\n{}<!-- end of options -->\n"
    head = "\n| variable | default | |\n|---|---|---|\n"
    rows = [
        "| `r_new` | `[x]` | New (`x`, `y`) |\n| `r_new[].url` | – | Where |\n",
        "| `r_b` | `off` | Last |\n",
    ]
    made = with_options(page.format("r_a", "") + "text\n" + page.format("r_b", "old\n"), "r")
    first = head + "| `r_a` | – | See (`r_b=f(x)`). `1` \\| more |\n" + rows[0] + "\n"
    assert made == page.format("r_a", first) + "text\n" + page.format("r_b", head + rows[1] + "\n")
    old = "---\n# about\n\n# one\nr_a: 1\n\n# two\nr_b:\n  - x\nr_gone: 1\n"
    assert with_defaults(old, "r") == (
        "---\n# about\n\n# one\nr_a: ''\nr_new:\n  - x\n\n# two\nr_b: 'off'\nr_manage_c: true\n"
    )
