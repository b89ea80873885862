# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs our modules for dedicated servers the way a user does, against a lab over real HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.accounts import RobotAccount
from tests.integration.runs import Run


class Account(RobotAccount):
    """An account at Robot, and our modules for it."""

    def __init__(self, lab: Any, folder: Path, **options: object) -> None:
        """``options``: of robot_rescue, for every run of it."""
        super().__init__(lab, folder)
        self.options = options

    def machines(self, *names: str, first_contact: str = "reset") -> list[dict[str, Any]]:
        """Machines as robot_rescue takes them."""
        more = {"first_contact": first_contact}
        return [{"name": name, "server_number": self.numbers[name], **more} for name in names or self.numbers]

    def rescue(
        self,
        machines: list[dict[str, Any]] | None = None,
        *flags: str,
        env: dict[str, str] | None = None,
        **more: object,
    ) -> Run:
        """Run robot_rescue for the machines, or for all that were added."""
        options = {"ssh_private_key": str(self.key), "known_hosts_dir": str(self.pins), **self.options, **more}
        return self.run("robot_rescue", *flags, env=env, machines=machines or self.machines(), **options)


@pytest.fixture
def account(lab_dry, tmp_path) -> Iterator[Account]:
    """An account without servers; its machines keep their power state only."""
    account = Account(lab_dry, tmp_path, look_timeout=0)
    yield account
    account.stop()


@pytest.fixture
def real_account(lab_nspawn, tmp_path) -> Iterator[Account]:
    """An account whose machines really boot."""
    account = Account(lab_nspawn, tmp_path, look_timeout=4)
    account.forget_faults()
    yield account
    account.close()
