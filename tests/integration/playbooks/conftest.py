# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs for whole playbook runs: the command line of the lab, ansible-playbook as an operator types it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import pytest

from dev.stage import DedicatedStage, Stage
from lab.client import call
from tests.integration.controller import Controller
from tests.integration.runs import LIMIT, Run, Running

StageKind = TypeVar("StageKind", bound=Stage)


class Playground(Controller, Generic[StageKind]):
    """A stage, and playbook runs on it whose output is kept."""

    def __init__(self, stage: StageKind) -> None:
        super().__init__(None, stage.folder / "controller")
        self.folder.mkdir()
        self.stage = stage
        self.output = ""

    @property
    def environment(self) -> dict[str, str]:
        """That of the stage, with what Ansible remembers below our folder."""
        return {**self.stage.environment, **self.settings}

    def start(self, *arguments: str, inventory: str = "") -> Running:
        """Begin to run the playbook of the stage."""
        words = self.stage.playbook_command(*arguments)
        if inventory:
            words[words.index("-i") : words.index("-i")] = ["-i", inventory]
        return self.begin(words, cwd=self.stage.folder)

    def finish(self, *arguments: str, inventory: str = "", limit: float = LIMIT) -> Run:
        """Run the playbook to its end; what it printed is in ``output``."""
        done = self.start(*arguments, inventory=inventory).wait(limit)
        self.output = done.output
        return done

    def run(self, *arguments: str, inventory: str = "", limit: float = LIMIT) -> int:
        """The exit code of a run."""
        return self.finish(*arguments, inventory=inventory, limit=limit).rc

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Call one of the lab's own routes."""
        return call(self.stage.lab["endpoint"], self.stage.token, method, path, body, 300)

    def row(self, key: str, value: object) -> dict[str, Any]:
        """What the lab says of the machine with this ``name`` or ``number``."""
        (found,) = [one for one in self.control("GET", "/machines")["machines"] if one.get(key) == value]
        return found

    def boots(self, name: str) -> list[str]:
        """What a machine booted so far, oldest first: the lab's word, not ours."""
        return [boot["source"] for boot in self.row("name", name)["boots"]]

    def proof(self, name: str) -> list[str]:
        """What a new system says of itself."""
        return self.stage.ssh(name, "hostname; cat /etc/kubenode-proof").splitlines()


_NUMBERS = itertools.count(1)


def _name() -> str:
    """A name of a lab that no other run on this host has."""
    return f"test-{os.getpid()}-{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Playground[Stage]]]:
    """Make labs of a kind; they end with the module."""
    with ExitStack() as stack:

        def make(kind: str, *options: str) -> Playground[Stage]:
            folder = tmp_path_factory.mktemp("stage")
            lab_options = ["--kind", kind, "--datacenters", *options]
            made = Playground(stack.enter_context(Stage(folder / "stage", _name(), lab_options=lab_options)))
            stack.callback(made.stop)
            return made

        yield make


@pytest.fixture(scope="module")
def dedicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Playground[DedicatedStage]]]:
    """Make labs of a kind with dedicated servers; they end with the module."""
    with ExitStack() as stack:

        def make(kind: str, servers: list[dict[str, Any]]) -> Playground[DedicatedStage]:
            folder = tmp_path_factory.mktemp("dedicated")
            stage = DedicatedStage(folder / "stage", _name(), servers, lab_options=["--kind", kind])
            made = Playground(stack.enter_context(stage))
            stack.callback(made.stop)
            return made

        yield make


@pytest.fixture(scope="module")
def nspawn(playground: Callable[..., Any]) -> Playground[Stage]:
    """One lab whose machines really boot, for the tests of a module."""
    return playground("nspawn")
