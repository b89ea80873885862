# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs for whole playbook runs: the command line of the lab, ansible-playbook as an operator types it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from dev.dedicated import DedicatedStage
from dev.stage import Stage

StageKind = TypeVar("StageKind", bound=Stage)


class Playground(Generic[StageKind]):
    """A stage, and playbook runs on it whose output is kept."""

    def __init__(self, stage: StageKind) -> None:
        self.stage = stage
        self.output = ""

    def run(self, *arguments: str, timeout: float = 240) -> int:
        """Run the playbook; what it printed is in ``output``."""
        words = self.stage.playbook_command(*arguments)
        done = subprocess.run(
            words,
            env=self.stage.environment,
            cwd=self.stage.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        self.output = done.stdout
        return done.returncode

    def boots(self, name: str) -> list[str]:
        """What a machine booted so far, oldest first: the lab's word, not ours."""
        for machine in self.stage.machines():
            if machine["name"] == name:
                return [boot["source"] for boot in machine["boots"]]
        return []


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Playground]]:
    """Make labs of a kind; they end with the module."""
    stages: list[Stage] = []

    def make(kind: str, *options: str) -> Playground:
        folder: Path = tmp_path_factory.mktemp("stage")
        lab_options = ["--kind", kind, "--datacenters", *options]
        stage = Stage(folder / "stage", f"test-{os.getpid()}-{len(stages)}-{kind}", lab_options=lab_options)
        stage.__enter__()
        stages.append(stage)
        return Playground(stage)

    yield make
    for stage in stages:
        stage.__exit__()


@pytest.fixture(scope="module")
def dedicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Playground[DedicatedStage]]]:
    """Make labs of a kind with dedicated servers; they end with the module."""
    stages: list[Stage] = []

    def make(kind: str, servers: list[dict[str, Any]]) -> Playground[DedicatedStage]:
        folder: Path = tmp_path_factory.mktemp("dedicated")
        name = f"dedicated-{os.getpid()}-{len(stages)}-{kind}"
        stage = DedicatedStage(folder / "stage", name, servers, lab_options=["--kind", kind])
        stage.__enter__()
        stages.append(stage)
        return Playground(stage)

    yield make
    for stage in stages:
        stage.__exit__()


@pytest.fixture(scope="module")
def nspawn(playground: Callable[..., Any]) -> Playground:
    """One lab whose machines really boot, for the tests of a module."""
    return playground("nspawn")
