# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab as a package of its own: lab/pyproject.toml names every package, data file and dependency."""

import ast
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

LAB = Path(__file__).resolve().parents[2] / "lab"
#: module → distribution, where their names differ
DISTRIBUTIONS = {"yaml": "pyyaml", "pydantic_core": "pydantic"}


@pytest.fixture(name="project", scope="module")
def _project() -> dict[str, Any]:
    return tomllib.loads((LAB / "pyproject.toml").read_text())


def _files() -> list[Path]:
    found = (path.relative_to(LAB) for path in LAB.rglob("*") if path.is_file())
    return [path for path in found if not {"__pycache__", "build", "hetzner_lab.egg-info"} & set(path.parts)]


def test_every_file_is_in_the_package(project: dict[str, Any]) -> None:
    setuptools = project["tool"]["setuptools"]
    folders = {name: LAB.joinpath(*name.split(".")[1:]) for name in setuptools["packages"]}
    packed = {file.relative_to(LAB) for folder in folders.values() for file in folder.glob("*.py")}
    for name, patterns in setuptools["package-data"].items():
        for pattern in patterns:
            matched = {path.relative_to(LAB) for path in folders[name].glob(pattern) if path.is_file()}
            assert matched, f"{pattern} of {name} matches no file"
            packed |= matched
    beside = {Path("pyproject.toml"), *(Path(name) for name in project["project"]["license-files"])}
    assert all((LAB / name).is_file() for name in beside)
    assert set(_files()) - beside <= packed


def test_every_import_is_a_dependency(project: dict[str, Any]) -> None:
    wanted = {requirement.partition(">")[0] for requirement in project["project"]["dependencies"]}
    imported: set[str] = set()
    for file in _files():
        if file.suffix == ".py" and file.name != "testing.py":
            for node in ast.walk(ast.parse((LAB / file).read_text())):
                if isinstance(node, ast.ImportFrom) and not node.level:
                    imported.add(str(node.module).partition(".")[0])
                elif isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
    foreign = imported - {"lab"} - sys.stdlib_module_names
    assert {DISTRIBUTIONS.get(name, name) for name in foreign} <= wanted
