# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with dedicated servers, and an inventory that names their disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dev.stage import Stage


class DedicatedStage(Stage):
    """A stage whose machines stand there from the start, as servers do that were bought."""

    playbook = "kubenode.provision.robot_image_url"

    def __init__(
        self,
        folder: Path,
        name: str,
        servers: Sequence[Mapping[str, Any]],
        *,
        lab_options: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        """``servers``: entries of the lab's ``--dedicated`` file."""
        super().__init__(folder, name, lab_options=lab_options, keep=keep)
        self._servers = servers

    def _options(self) -> Sequence[str]:
        file = self.folder / "dedicated.yml"
        file.write_text(yaml.safe_dump([dict(server) for server in self._servers]), encoding="utf-8")
        return [*self._lab_options, "--dedicated", str(file)]

    def _credentials(self) -> dict[str, str]:
        robot = self.lab["robot"]
        return {
            "HROBOT_ENDPOINT": robot["endpoint"],
            "HROBOT_API_USER": robot["user"],
            "HROBOT_API_PASSWORD": Path(robot["password_file"]).read_text(encoding="ascii"),
        }

    def _prepare(self) -> None:
        """Nothing: the SSH key is registered by the run itself."""

    def address(self, name: str) -> str:
        """The IPv4 address of a machine; its server gets the machine's name only at the end of a run."""
        inventory = yaml.safe_load(self.inventory.read_text(encoding="utf-8"))
        groups = inventory["all"]["children"].values()
        (variables,) = [group["hosts"][name] for group in groups if name in group["hosts"]]
        number = variables["kubenode_server_number"]
        (machine,) = [one for one in self.machines() if one.get("number") == number]
        return str(machine["address"])

    def write_groups(self, groups: Mapping[str, Mapping[str, Any]], *, known_host_key: bool = True) -> Path:
        """An inventory: group → ``hosts`` (name → variables) and ``vars``."""
        settings = {**self.ssh_settings(), **self.bootstrap_settings(known_host_key=known_host_key)}
        inventory = {"all": {"vars": settings, "children": {name: dict(group) for name, group in groups.items()}}}
        self.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")
        return self.inventory
