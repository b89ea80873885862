# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators for whole playbook runs; their labs end with the module. And a user who needs no lab."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.testbed import DedicatedTestbed, Testbed
from tests.integration.controller import Controller, collections_path
from tests.integration.runs import Run
from tests.integration.testbeds import Operator, cloud_testbed, dedicated_testbed


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Operator[Testbed]]]:
    """Make labs for cloud machines of a kind."""
    with ExitStack() as stack:

        def make(kind: str, *options: str) -> Operator[Testbed]:
            testbed = cloud_testbed(tmp_path_factory.mktemp("stage"), *options, kind=kind)
            return stack.enter_context(Operator.of(testbed))

        yield make


@pytest.fixture(scope="module")
def dedicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Operator[DedicatedTestbed]]]:
    """Make labs of a kind with dedicated servers."""
    with ExitStack() as stack:

        def make(kind: str, servers: list[dict[str, Any]]) -> Operator[DedicatedTestbed]:
            return stack.enter_context(Operator.of(dedicated_testbed(tmp_path_factory.mktemp("stage"), servers, kind)))

        yield make


@pytest.fixture(scope="module")
def nspawn(operator: Callable[..., Any]) -> Operator[Testbed]:
    """One lab whose machines really boot, for the tests of a module."""
    return operator("nspawn")


class User(Controller):
    """A user without an API, with the collection installed; the inventory is in another folder than the user stands."""

    def __init__(self, folder: Path, installed: Path) -> None:
        super().__init__(None, folder)
        self.installed, self.inventory, self.stands = installed, folder / "inventory", folder / "stands"
        self.inventory.mkdir()
        self.stands.mkdir()
        self.sources = [str(self.inventory / "hosts.yml")]
        self.report_file = folder / "report.json"

    @property
    def environment(self) -> dict[str, str]:
        """Without the credentials of the one who runs the tests."""
        kept = {key: value for key, value in super().environment.items() if not key.startswith("HCLOUD_")}
        return {
            **kept,
            "ANSIBLE_CALLBACKS_ENABLED": "kubenode.provision.provision_report",
            "ANSIBLE_COLLECTIONS_PATH": collections_path(self.installed),
            "KUBENODE_REPORT_FILE": str(self.report_file),
        }

    def run(
        self, playbook: str, *flags: str, hosts: Mapping[str, Mapping[str, object]] | None = None, **variables: object
    ) -> Run:
        """A run of an installed playbook; ``hosts`` with their variables, or one that does not answer."""
        silent = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_private_key_file": str(self.key)}
        inventory = {"hosts": {"n-1": silent} if hosts is None else hosts, "vars": variables}
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump({"all": inventory}))
        return self.run_here(playbook, *flags)

    def run_here(self, playbook: str, *flags: str) -> Run:
        """A run with the inventories that are there."""
        inventories = [word for source in self.sources for word in ("-i", source)]
        command = ["ansible-playbook", *inventories, f"kubenode.provision.{playbook}", *flags]
        return self.begin(command, self.stands).wait()

    @property
    def report(self) -> dict[str, Any]:
        """That of the last run."""
        return json.loads(self.report_file.read_text())


@pytest.fixture
def user(tmp_path: Path, installed: Path) -> User:
    """A user without an API."""
    return User(tmp_path, installed)
