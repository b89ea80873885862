# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node machines of the lab, and a user who runs our modules on them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.controller import Controller
from tests.integration.runs import Run

if TYPE_CHECKING:
    from lab.nodes import Node

NAME = "node"


class Target(Controller):
    """One machine, and the controller that knows it."""

    def __init__(self, lab: Any, node: Node, folder: Path) -> None:
        super().__init__(lab, folder)
        self.node = node
        folder.mkdir()
        self.hosts[NAME] = node.inventory

    def run(self, name: str, *flags: str, **options: object) -> Run:
        """One run of a module, with everything printed that Ansible can print of its arguments."""
        return self.module(NAME, name, *flags, **options)

    def apply(self, *settings: dict, flags: tuple[str, ...] = (), **options: object) -> Run:
        """One run of node_settings."""
        return self.run("node_settings", *flags, settings=[{"step": "s", **one} for one in settings], **options)

    def put(self, path: str, text: str) -> None:
        """Write a file of the machine."""
        self.node.run(f"mkdir -p \"$(dirname '{path}')\" && cat >'{path}' <<'KUBENODE_END'\n{text}KUBENODE_END\n")

    def file(self, path: str) -> str:
        """Read a file of the machine."""
        return self.node.run(f"cat '{path}'")

    def tree(self) -> str:
        """Every file that a run could have changed, with its time of change."""
        return self.node.run(
            "find /etc /usr/local /opt /var/cache/kubenode /run/kubenode -printf '%p %C@\\n' 2>&1 | sort"
        )


TargetFactory = Callable[[str], Target]


@pytest.fixture(scope="module")
def target_of(lab_nspawn, tmp_path_factory) -> TargetFactory:
    """Make a machine from an image; machines of one module are shared."""
    made: dict[str, Target] = {}

    def make(image: str) -> Target:
        if image not in made:
            name = f"engine-{image}-{os.getpid()}-{len(made)}"
            made[image] = Target(lab_nspawn, lab_nspawn.node(name, image), tmp_path_factory.mktemp("target") / image)
        return made[image]

    return make


@pytest.fixture
def target(target_of) -> Target:
    """A machine with Debian 13 without pending changes."""
    made = target_of("debian13")
    made.node.run("rm -rf /run/kubenode")
    return made
