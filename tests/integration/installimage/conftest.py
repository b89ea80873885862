# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers of the lab in their rescue, and a controller that installs them as a user does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.accounts import RobotAccount
from tests.integration.runs import Run

IMAGE = "Debian-1200-bookworm-amd64-base.tar.zst"
#: A boot of a container on a machine that does a lot else.
PATIENCE = 600


class Installer(RobotAccount):
    """A controller that the lab's Robot knows."""

    def __init__(self, lab: Any, folder: Path) -> None:
        super().__init__(lab, folder)
        self.logs = folder / "logs"

    def machine(self, name: str, *sizes: str, **fields: object) -> None:
        """A new dedicated server with empty disks of these sizes, booted into its rescue."""
        disks = [{"size": size, "kind": "nvme"} for size in sizes or ("3G",)]
        self.add(name, name=name, disks=disks, powered=False, **fields)
        self.arm(name)
        self.reset(name, "power")

    def devices(self, name: str) -> list[str]:
        """The disks by their WWNs."""
        return [disk["wwn"] for disk in self.row(name)["disks"]]

    def run(self, name: str, module: str, *flags: str, **options: object) -> Run:
        """Run one of our modules on a machine."""
        return self.module(name, module, *flags, known_hosts_dir=str(self.pins), **options)

    def options(self, name: str, **more: object) -> dict[str, Any]:
        """Options of robot_installimage for a machine."""
        given = {
            "image": {"name": IMAGE},
            "root_devices": self.devices(name)[:1],
            "log_dir": str(self.logs),
            "rescue_timeout": PATIENCE,
            "timeout": PATIENCE,
        }
        return {**given, **more}

    def install(self, name: str, *flags: str, **more: object) -> Run:
        """Run robot_installimage on a machine."""
        return self.run(name, "robot_installimage", *flags, **self.options(name, **more))

    def boot(self, name: str, installed: Run, **more: object) -> Run:
        """Leave the rescue and prove the new system, which must show the host keys of its installation."""
        given = {
            "previous_boot_id": installed["boot_id"],
            "host_keys": installed["host_keys"],
            "hostname": name,
            "command": "installimage",
            "timeout": PATIENCE,
            "boot_state": installed["boot_state"],
            "installation": installed["installation"],
            "written": installed["written"],
        }
        return self.run(name, "machine_boot", **{**given, **more})

    def log(self, name: str, which: str = "") -> str:
        """A log of the installation on the controller."""
        which = which and f".{which}"
        return (self.logs / name / f"installimage{which}.log").read_text()

    def blank(self, name: str) -> bool:
        """Whether the rescue finds nothing on any disk of the machine."""
        facts = self.run(name, "machine_disks").ok()
        return [disk["holds"] for disk in facts["disks"]] == [[]] * len(self.devices(name))


def fields_of(text: str) -> dict[str, str]:
    """``key=value`` lines."""
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


@pytest.fixture
def controller(lab_nspawn, tmp_path) -> Iterator[Installer]:
    """A controller that the lab's Robot knows, and no machines yet."""
    controller = Installer(lab_nspawn, tmp_path)
    yield controller
    controller.close()
