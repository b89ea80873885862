# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documents name is there, and their tables answer with few files."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from dev.toolchain.rules import MAY_IMPORT
from tests.documents import anchors, links

CHECKOUT = Path(__file__).resolve().parents[3]
GUIDES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (CHECKOUT / "docs").glob("*.md"))]
READMES = [path for folder in ("deploy", "lab", "roles") for path in (CHECKOUT / folder).rglob("README.md")]
#: document → the heading below which it speaks of our files, where it is about files of others, too
DOCUMENTS = {
    "README.md": "",
    "CONTRIBUTING.md": "",
    "docs/design.md": "",
    "docs/words.md": "",
    "lab/README.md": "Files",
}
#: folders from which a document may name a file
_FROM = ("", "plugins", "plugins/module_utils", "plugins/plugin_utils", "plugins/module_utils/_hetzner", "lab")
_PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)+/?)`")
#: what stands for a name in a path: NAME, ROLE …
_ANY = re.compile(r"\b(?!README)[A-Z]{4,}(?=\b|_)")


def paths(text: str, document: str = "") -> list[str]:
    """The paths in backticks that begin with a file or a folder of ours; others are of machines, URLs or labels."""
    below = [*_FROM, str(Path(document).parent)]
    return [
        path
        for path in _PATH.findall(text)
        if path.startswith("_") or any((CHECKOUT / folder / path.partition("/")[0]).exists() for folder in below)
    ]


def missing(named: list[str], document: str = "") -> list[str]:
    """Those that nothing in the checkout fits; a module may be named without its suffix."""
    below = [*_FROM, str(Path(document).parent)]
    patterns = {path: [f"{folder}/{_ANY.sub('*', path)}".lstrip("/") for folder in below] for path in named}
    return [
        path
        for path, places in patterns.items()
        if not any(list(CHECKOUT.glob(place.rstrip("/") + suffix)) for place in places for suffix in ("", ".py"))
    ]


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of each row of the first table below a heading."""
    below = section(document, heading).splitlines()
    lines = list(takewhile(_is_row, dropwhile(lambda line: not _is_row(line), below)))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _is_row(line: str) -> bool:
    return line.startswith("|")


def section(document: str, heading: str) -> str:
    """What stands below a heading; all of a document for none."""
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    if not heading:
        return text
    _before, found, below = text.partition(f"\n## {heading}\n")
    assert found, f"{document} has no heading {heading}"
    return below.partition("\n## ")[0]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_names_is_there(document):
    named = paths(section(document, DOCUMENTS[document]), document)
    assert named
    # made by make, and no part of the checkout
    assert missing([path for path in named if not path.startswith("build/")], document) == []


def test_what_is_not_there_is_found():
    text = (
        "`roles/ROLE/templates/`, `_common/probe`, `lab/nowhere.py`, `docs/NAME.rst`, `_old/a`, `kubenode.provision/a`"
    )
    assert missing(paths(text)) == ["lab/nowhere.py", "docs/NAME.rst", "_old/a"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_file_that_is_named_without_its_folder_is_there(document):
    folders = ("dev", "lab", "plugins", "provision", "tests")
    there = {path.name for folder in folders for path in (CHECKOUT / folder).rglob("*.*")}
    named = re.findall(r"`([\w-]+\.(?:py|sh|j2))`", section(document, DOCUMENTS[document]))
    assert [name for name in named if name not in there and "NAME" not in name] == []


def test_a_question_of_a_newcomer_is_answered_by_two_files():
    found = rows("README.md", "Where is what")
    assert len(found) > 20
    assert [row for row in found if not 1 <= len(re.findall("`[^`]+`", " ".join(row[1:]))) <= 2] == []


def test_a_how_to_names_three_files():
    found = rows("CONTRIBUTING.md", "How to add …")
    assert len(found) > 15
    assert [row[0] for row in found if len(paths(" ".join(row[1:-1]))) > 3] == []
    assert [row[0] for row in found if any(len(paths(cell)) > 1 for cell in row[1:-1])] == []


def place(name: str) -> str:
    """The path of what the table of folders names, as `dev/toolchain/rules.py` spells it."""
    below = ("", "plugins/", "plugins/module_utils/", "plugins/plugin_utils/")
    found = [folder + name for folder in below if (CHECKOUT / folder / name).exists()]
    assert found, f"docs/design.md: {name} is not there"
    return found[0].removesuffix(".py")


def named_borders() -> dict[str, set[str] | None]:
    """Folder or file of the table of folders → what of ours it may import; None where it may import all."""
    found: dict[str, set[str] | None] = {}
    for cells in rows("docs/design.md", "Folders and borders"):
        others = {place(name) for name in re.findall("`([^`]+)`", cells[2])}
        for folder in [place(name) for name in re.findall("`([^`]+)`", cells[0])]:
            may = others | {folder} if cells[2].startswith("itself") else others
            assert may or cells[2] in ("", "all", "nothing")
            found[folder] = None if cells[2] in ("", "all") else may
    return found


def test_the_table_of_folders_says_which_imports_are_allowed():
    found = named_borders()
    allowed: dict[str, set[str] | None] = {}
    for folder in found:
        # the longest one counts
        rules = [rule for rule in MAY_IMPORT if f"{folder}/".startswith(f"{rule}/")]
        allowed[folder] = set(MAY_IMPORT[max(rules, key=len)]) if rules else None
    assert found == allowed


def test_the_table_of_folders_has_every_border():
    found = named_borders()
    # a folder may stand there by all of its parts
    parts = [
        str(path.relative_to(CHECKOUT))
        for whole in ("plugins", "plugins/module_utils")
        for path in (CHECKOUT / whole).iterdir()
        if any(path.rglob("*.py"))
    ]
    assert {*MAY_IMPORT, *parts} - {*found} <= {"plugins", "plugins/module_utils"}


@pytest.mark.parametrize("document", GUIDES)
def test_targets_of_make_that_a_document_names_are_there(document):
    targets = set(re.findall(r"^([a-z-]+%?):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", (CHECKOUT / document).read_text(encoding="utf-8"), re.MULTILINE)
    families = [target[:-1] for target in targets if target.endswith("%")]
    assert [name for name in named if name not in targets and not name.startswith(tuple(families))] == []


@pytest.mark.parametrize("document", [*GUIDES, *sorted(str(one.relative_to(CHECKOUT)) for one in READMES)])
def test_links_of_a_document_lead_somewhere(document):
    place = CHECKOUT / document
    wrong = []
    for link in links(place):
        path, _hash, anchor = link.partition("#")
        target = place.parent / path if path else place
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            wrong.append(link)
    assert wrong == []


def test_readme_leads_to_every_guide():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert [guide for guide in GUIDES if guide != "README.md" and f"]({guide})" not in text] == []


def test_readme_names_every_role():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    roles = [path.name for path in (CHECKOUT / "roles").iterdir()]
    assert [name for name in roles if f"`kubenode.provision.{name}`" not in text] == []


@pytest.mark.parametrize("files", ["playbooks/*.yml", "plugins/modules/[a-z]*.py"])
def test_readme_names_every_playbook_and_module(files):
    there = {path.stem for path in CHECKOUT.glob(files)}
    text = section("README.md", "Content")
    assert there
    assert {name for name in there if f"`kubenode.provision.{name}`" not in text} == set()


def test_the_commits_that_blame_passes_over_are_whole_ids():
    lines = (CHECKOUT / ".git-blame-ignore-revs").read_text(encoding="utf-8").splitlines()
    ids = [line for line in lines if not line.startswith("#")]
    assert ids
    assert len(ids) == len(set(ids))
    assert [line for line in ids if not re.fullmatch(r"[0-9a-f]{40}", line)] == []


def test_settings_of_linters_name_files_that_are_there():
    text = "".join((CHECKOUT / name).read_text(encoding="utf-8") for name in (".yamllint", "REUSE.toml", "galaxy.yml"))
    named = re.findall(r"\b(?:LICENSES|lab|tests/unit|tests/integration)/[\w./-]+\.\w+", text)
    assert named
    assert [name for name in named if not (CHECKOUT / name).exists()] == []
