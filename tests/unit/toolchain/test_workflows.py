# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`.github`: what the workflows run is there, every ansible-core and every part of the long run has a job."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.toolchain import environments
from dev.toolchain import test as parts
from dev.toolchain.lint import LINTERS

CHECKOUT = Path(__file__).resolve().parents[3]
GITHUB = CHECKOUT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def commands(workflow: dict[str, Any]) -> Iterator[str]:
    """Every line that a workflow runs, for each combination of its job's matrix."""
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for values in itertools.product(*matrix.values()):
            for step in job["steps"]:
                text = step.get("run", "")
                for name, value in zip(matrix, values, strict=True):
                    text = text.replace("${{ matrix." + name + " }}", value)
                yield from text.splitlines()


def unknown(command: str) -> list[str]:
    """What of the checkout a command names and that is not there."""
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    targets |= {f"lint-{linter.name}" for linter in LINTERS} | {f"test-long-{part.name}" for part in parts.LONG}
    wrong = [name for name in re.findall(r"\bmake ([\w.-]+)", command) if name not in targets]
    wrong += [name for name in re.findall(r"(?<![\w/])(\.?\w+/[\w./-]+)", command) if not missing_is_made(name)]
    return wrong + re.findall(r"\$\{\{ matrix\.\w+ \}\}", command)


def missing_is_made(name: str) -> bool:
    """Whether a path is a program of the checkout, or below what `make release` makes."""
    return name.startswith("dist/") or os.access(CHECKOUT / name, os.X_OK)


def all_commands() -> list[str]:
    return [command for path in WORKFLOWS for command in commands(yaml.safe_load(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_of_a_workflow_are_there(path: Path):
    named = list(commands(yaml.safe_load(path.read_text(encoding="utf-8"))))
    assert named
    assert [command for command in named if unknown(command)] == []


def test_commands_that_are_not_there_are_found():
    matrix = {
        "a": {"strategy": {"matrix": {"x": ["1", "2"]}}, "steps": [{"run": "make ${{ matrix.x }}"}, {"uses": "y"}]}
    }
    assert list(commands({"jobs": matrix})) == ["make 1", "make 2"]
    assert unknown("sudo make tests") == ["tests"]
    assert unknown("dev/releases --tag x && make lint-ruff") == ["dev/releases"]
    assert unknown("make lint-${{ matrix.y }}") == ["lint-", "${{ matrix.y }}"]
    assert unknown("dev/release && sudo make test-long-units-2.21 && gh upload dist/*") == []


def test_every_core_and_every_part_of_the_long_run_has_a_job():
    named = " ".join(all_commands()) + " "
    assert [part.name for part in parts.LONG if f"make test-long-{part.name} " not in named] == []
    # those of main are among the default tests
    assert "make test " in named
    assert {part.core for part in parts.PARTS.values()} == set(environments.CORES)
    assert "make lint " in named
    assert {f"sanity-{core}" for core in environments.CORES} <= {linter.name for linter in LINTERS}


@pytest.mark.parametrize("path", sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_forms_of_issues_have_what_github_wants(path: Path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert all(link.keys() == {"name", "url", "about"} for link in form["contact_links"])
        return
    assert form.keys() >= {"name", "description", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert all(field["attributes"]["options"] for field in fields if field["type"] == "dropdown")
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}


def test_documents_that_a_form_names_are_there():
    text = "".join(path.read_text(encoding="utf-8") for path in GITHUB.rglob("*.*"))
    named = set(re.findall(r"\b(?:docs/)?[\w-]+\.md\b", text))
    assert len(named) >= 3
    assert [name for name in named if not (CHECKOUT / name).exists()] == []
