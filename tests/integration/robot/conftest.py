# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs our modules for dedicated servers the way a user does, against a lab over real HTTP."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.integration.modules import Run, run

_NUMBERS = itertools.count(5001)


class Account:
    """A lab seen from a user's controller: modules on one side, a plain look at Robot and the machines on the other."""

    def __init__(self, lab, folder: Path, **options: object) -> None:
        """``options``: of robot_rescue, for every run of it."""
        self.options = options
        self.lab = lab
        self.folder = folder
        self.pins = folder / "pins"
        self.key = self.new_key("id_ed25519")
        self.numbers: dict[str, int] = {}

    def new_key(self, name: str) -> Path:
        """Make an SSH key pair; returns the file of its private half."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
        return path

    def add(self, *names: str, **fields: object) -> None:
        """Add dedicated servers of these fields."""
        for name in names:
            self.numbers[name] = next(_NUMBERS)
        self.lab.dedicated(*({"number": self.numbers[name], **fields} for name in names))

    def robot(self, method: str, path: str, form: dict | None = None) -> dict:
        """One request to Robot as another client would make it."""
        answer = requests.request(
            method,
            self.lab.robot_endpoint + path,
            data=form,
            auth=(self.lab.robot_user, self.lab.robot_password),
            timeout=60,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else {}

    def rescue_of(self, name: str) -> dict:
        """Robot's view of the rescue of a machine."""
        return self.robot("GET", f"/boot/{self.numbers[name]}/rescue")["rescue"]

    def row(self, name: str) -> dict:
        """What the lab says of a machine."""
        rows = self.lab.control("GET", "/machines")["machines"]
        (found,) = [row for row in rows if row.get("number") == self.numbers[name]]
        return found

    def boots(self, name: str) -> list[str]:
        """What a machine booted, oldest first."""
        return [boot["source"] for boot in self.row(name)["boots"]]

    def resets(self, name: str) -> list[str]:
        """The resets that reached a machine, oldest first."""
        return [reset["type"] for reset in self.row(name)["resets"]]

    def requests(self, method: str = "", path: str = "") -> list[dict]:
        """The requests that Robot got, oldest first."""
        found = [one for one in self.lab.control("GET", "/requests")["requests"] if one["api"] == "robot"]
        return [one for one in found if one["method"].startswith(method) and one["path"].startswith(path)]

    def forget_requests(self) -> None:
        """Count from here."""
        self.lab.control("DELETE", "/requests")

    def fault(self, **fault: object) -> None:
        """Add a fault to the lab's script; ``machine`` by our name."""
        if "machine" in fault:
            fault["machine"] = str(self.numbers[str(fault["machine"])])
        self.lab.control("POST", "/faults", fault)

    def machines(self, *names: str, first_contact: str = "reset") -> list[dict]:
        """Machines as robot_rescue takes them."""
        more = {"first_contact": first_contact}
        return [{"name": name, "server_number": self.numbers[name], **more} for name in names or self.numbers]

    def run(self, module: str, *flags: str, env: dict | None = None, **options: object) -> Run:
        """Run one of our modules."""
        return run(module, options, flags, {**self.lab.env, **(env or {})}, self.folder)

    def rescue(self, machines: list[dict] | None = None, *flags: str, **more: object) -> Run:
        """Run robot_rescue for the machines, or for all that were added."""
        options = {"ssh_private_key": str(self.key), "known_hosts_dir": str(self.pins), **self.options, **more}
        return self.run("robot_rescue", *flags, machines=machines or self.machines(), **options)


@pytest.fixture
def account(lab_dry, tmp_path) -> Account:
    """An account without servers; its machines keep their power state only."""
    return Account(lab_dry, tmp_path, look_timeout=0)


@pytest.fixture
def real_account(lab_nspawn, tmp_path) -> Iterator[Account]:
    """An account whose machines really boot. The lab is shared: what a test made is taken away after it."""
    account = Account(lab_nspawn, tmp_path, look_timeout=4)
    lab_nspawn.control("DELETE", "/faults")
    yield account
    lab_nspawn.control("DELETE", "/faults")
    for number in account.numbers.values():
        lab_nspawn.control("DELETE", f"/dedicated/{number}")
