# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs for whole playbook runs: the command line of the lab, ansible-playbook as an operator types it."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from dev.testbed import DedicatedTestbed, Testbed
from tests.image_commands import written_by_shell
from tests.integration.accounts import remote_lab
from tests.integration.controller import Controller
from tests.integration.runs import LIMIT, Run, Running

#: An image that nothing fetches.
NOWHERE = "https://images.example.com/x.raw.zst#sha256=" + "0" * 64

TestbedKind = TypeVar("TestbedKind", bound=Testbed)


class Operator(Controller, Generic[TestbedKind]):
    """Runs the playbook of a testbed as its operator does; the output is kept."""

    def __init__(self, testbed: TestbedKind) -> None:
        super().__init__(remote_lab(testbed), testbed.folder / "controller")
        self.folder.mkdir()
        self.testbed = testbed
        self.output = ""

    @property
    def environment(self) -> dict[str, str]:
        """That of the testbed, with what Ansible remembers below our folder."""
        return {**self.testbed.environment, **self.settings}

    def start(self, *arguments: str, inventory: str = "") -> Running:
        """Begin to run the playbook of the testbed."""
        words = self.testbed.playbook_command(*arguments)
        if inventory:
            words[words.index("-i") : words.index("-i")] = ["-i", inventory]
        return self.begin(words, cwd=self.testbed.folder)

    def run(self, *arguments: str, inventory: str = "", limit: float = LIMIT) -> Run:
        """Run the playbook to its end; what it printed is in ``output``, too."""
        done = self.start(*arguments, inventory=inventory).wait(limit)
        self.output = done.output
        return done

    @contextmanager
    def playing(self, playbook: str) -> Iterator[None]:
        """Run another playbook meanwhile."""
        main, self.testbed.playbook = self.testbed.playbook, f"kubenode.provision.{playbook}"
        try:
            yield
        finally:
            self.testbed.playbook = main

    @property
    def report(self) -> dict[str, Any]:
        """That of the last run, or of the one that goes on."""
        return json.loads(self.testbed.report.read_text())

    @property
    def machines(self) -> dict[str, dict[str, Any]]:
        """What the report says of each machine."""
        return {one["name"]: one for one in self.report["machines"]}

    def servers(self, hosts: Mapping[str, Mapping[str, Any]], **variables: Any) -> None:
        """An ordinary inventory of dedicated servers, which an image command writes."""
        common = {
            "kubenode_image_url": self.testbed.image_url(),
            "kubenode_image_url_command": "image-url-command-raw-disk",
            "kubenode_look_timeout": 4,  # of a machine that nothing was written to
            "kubenode_first_contact": "reset",
        }
        assert isinstance(self.testbed, DedicatedTestbed)
        self.testbed.write_groups({"machines": {"hosts": hosts, "vars": {**common, **variables}}})

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Call one of the lab's own routes."""
        return self.lab.control(method, path, body)

    def row(self, key: str, value: object) -> dict[str, Any]:
        """What the lab says of the machine with this ``name`` or ``number``."""
        (found,) = [one for one in self.control("GET", "/machines")["machines"] if one.get(key) == value]
        return found

    def boots(self, name: str) -> list[str]:
        """What a machine booted so far, oldest first: the lab's word, not ours."""
        try:
            machine = self.testbed.machine(name)
        except ValueError:  # there is none yet
            return []
        return [boot["source"] for boot in machine["boots"]]

    def proof(self, name: str) -> list[str]:
        """What a new system says of itself."""
        return self.testbed.ssh(name, "hostname; cat /etc/kubenode-proof").splitlines()

    @classmethod
    @contextmanager
    def of(cls, testbed: TestbedKind) -> Iterator[Self]:
        """Start the lab of a testbed, and end it with all that still runs."""
        with testbed:
            made = cls(testbed)
            try:
                yield made
            finally:
                made.stop()


def cloud_testbed(folder: Path, *options: str, kind: str = "nspawn") -> Testbed:
    """A lab for cloud machines of a kind, not started yet; further options are of ``python -m lab up``."""
    return Testbed(folder / "stage", _name(), lab_options=["--kind", kind, "--datacenters", *options])


def dedicated_testbed(folder: Path, servers: Sequence[Mapping[str, Any]], kind: str = "nspawn") -> DedicatedTestbed:
    """A lab with dedicated servers of a kind, not started yet."""
    return DedicatedTestbed(folder / "stage", _name(), servers, lab_options=["--kind", kind])


_NUMBERS = itertools.count(1)


def _name() -> str:
    """A name of a lab that no other run on this host has."""
    return f"test-{os.getpid()}-{next(_NUMBERS)}"


def raw_disk(before: str = "", after: str = "") -> str:
    """The script of an image command that does what the shipped raw-disk does, and something before and after it."""
    shipped = written_by_shell("raw-disk", "/root/raw-disk")
    return f'{shipped}{before}\n/root/raw-disk "$@" || exit 1\n{after}\n'


def waiting_command(folder: Path) -> Path:
    """A command of the user's own: says that it starts, waits for /root/go, then does what raw-disk does."""
    folder.mkdir(exist_ok=True)
    path = folder / "image-url-command-slow"
    wait = """echo start >> /root/starts
echo "start $(wc -l < /root/starts)"
while [ ! -e /root/go ]; do sleep 0.2; done"""
    path.write_text(f"#!/bin/bash\nset -e\n{raw_disk(wait)}")
    path.chmod(0o755)
    return path
