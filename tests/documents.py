# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code blocks of README and the guides, as a reader copies them: inventories, variables, playbooks, commands."""

import itertools
import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (CHECKOUT / "docs").glob("*.md"))]
COLLECTION = "kubenode.provision."
_FENCE = re.compile(r"^```(\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: the first line of a block that goes on with the inventory before it
_MORE = "# inventory.yml, more variables\n"
_SHELLS = ("shell", "console")
#: what a reader has to fill in
_GAPS = {"sha256=…": "sha256=" + "0" * 64, "'sha256:…'": f"'sha256:{'0' * 64}'", "#ws+…": "#ws+1", "…": "0" * 64}


@dataclass(frozen=True)
class Block:
    """One code block; ``place`` is its document and line."""

    place: str
    language: str
    text: str

    @property
    def variables(self) -> dict[str, Any]:
        """What a block of variables sets, which may be indented as it is in an inventory."""
        found = yaml.safe_load(textwrap.dedent(self.text))
        assert isinstance(found, dict), self.place
        return found

    @property
    def is_inventory(self) -> bool:
        """Whether it is an inventory of hosts."""
        return self.language == "yaml" and re.search(r"^  (hosts|children|vars):", self.text, re.MULTILINE) is not None

    @property
    def is_playbook(self) -> bool:
        """Whether it is a list of plays."""
        return (self.language == "yaml" and self.text.lstrip("-# \n").startswith(("name: ", "hosts: "))) or (
            self.language == "yaml" and isinstance(yaml.safe_load(textwrap.dedent(self.text)), list)
        )

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command."""
        if self.language not in _SHELLS:
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console" and any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


@dataclass
class Step:
    """One ``ansible-playbook`` of a document, with the files that its reader has by then."""

    place: str
    words: list[str]
    files: dict[str, Any] = field(default_factory=dict)

    @property
    def playbooks(self) -> list[str]:
        """The playbooks of this collection that it runs."""
        return [word.removeprefix(COLLECTION) for word in self.words if word.startswith(COLLECTION)]

    @property
    def extra(self) -> dict[str, Any]:
        """The variables of ``-e``."""
        found: dict[str, Any] = {}
        for option, value in itertools.pairwise(self.words):
            if option == "-e":
                name, equals, text = value.partition("=")
                found.update({name: text} if equals and not value.startswith("{") else yaml.safe_load(value))
        return found

    def write(self, folder: Path, more: Mapping[str, Any]) -> None:
        """The reader's files in a folder, with ``more`` variables for all hosts."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            top = next(iter(content))
            path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
            group = folder / "group_vars" / f"{top}.yml"
            group.parent.mkdir(exist_ok=True)
            # those of the block win over these, as in an inventory
            group.write_text(yaml.safe_dump(dict(more)), encoding="utf-8")


def blocks(document: str) -> list[Block]:
    """The code blocks of a document, with what a reader fills in."""
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        code = match[2]
        for gap, value in _GAPS.items():
            code = code.replace(gap, value)
        found.append(Block(f"{document}:{text.count(chr(10), 0, match.start()) + 1}", match[1], code))
    return found


def steps(document: str) -> list[Step]:
    """Every ``ansible-playbook`` of a document; a document without an inventory goes on with those of README."""
    inventory: dict[str, Any] = {}
    ours = [yaml.safe_load(block.text) for block in blocks("README.md") if block.is_inventory]
    found, written = [], inventory
    for block in blocks(document):
        if block.is_inventory:
            inventory = written = yaml.safe_load(block.text)
        elif block.language == "yaml" and is_of_hosts(block):
            # one of several, unless it says that it comes to those before
            (top, group), *_others = ((inventory if _MORE in block.text else written) or ours[0]).items()
            inventory = {top: {**group, "vars": {**group.get("vars", {}), **block.variables}}}
        for words in block.commands:
            if words[0] == "ansible-playbook":
                about = inventory or next(
                    one for one in ours if _is_dedicated(one) == any("robot_" in word for word in words)
                )
                files = {word: about for option, word in itertools.pairwise(words) if option == "-i"}
                found.append(Step(block.place, words, files or {"inventory.yml": about}))
    return found


def _is_dedicated(inventory: Mapping[str, Any]) -> bool:
    return "kubenode_server_number" in str(inventory)


def is_of_hosts(block: Block) -> bool:
    """Whether it is a block of variables of hosts of ours."""
    if block.is_playbook or block.is_inventory:
        return False
    return any(name.startswith(("kubenode_", "base_", "join_")) for name in block.variables)


def links(document: Path) -> list[str]:
    """Where the links of a document lead."""
    return re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """The anchors of a document as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in found}
