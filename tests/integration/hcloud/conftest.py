# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs our modules the way a user does, against a lab over real HTTP."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.modules import Run, run


class Project:
    """A lab seen from a user's controller: modules on one side, a plain look at the API on the other."""

    def __init__(self, lab, folder: Path, key_name: str = "deploy") -> None:
        self.lab = lab
        self.folder = folder
        self.key_name = key_name
        self.key = self.new_key("id_ed25519")
        body = {"name": key_name, "public_key": self.key.with_suffix(".pub").read_text()}
        self.key_id = self.call("POST", "/ssh_keys", body)["ssh_key"]["id"]

    def new_key(self, name: str) -> Path:
        """Make an SSH key pair; returns the file of its private half."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        return path

    def call(self, method: str, path: str, body: object = None) -> dict:
        """One request to the API as another client would make it."""
        request = urllib.request.Request(
            self.lab.endpoint + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.lab.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else {}

    def servers(self) -> dict[str, dict]:
        """All servers by name."""
        return {server["name"]: server for server in self.call("GET", "/servers?per_page=50")["servers"]}

    def commands(self, name: str) -> list[str]:
        """The commands of all actions of a server, oldest first."""
        server = self.servers()[name]
        actions = self.call("GET", f"/servers/{server['id']}/actions?sort=id:asc")["actions"]
        return [action["command"] for action in actions]

    def fault(self, **fault: object) -> None:
        """Add a fault to the lab's script."""
        self.lab.control("POST", "/faults", fault)

    def run(self, module: str, *flags: str, env: dict | None = None, **options: object) -> Run:
        """Run one of our modules."""
        return run(module, options, flags, {**self.lab.env, **(env or {})}, self.folder)

    def machine(self, name: str, **more: object) -> dict:
        """A machine as hcloud_machine takes it."""
        return {"name": name, "server_type": "cx23", "location": "fsn1", "ssh_keys": [self.key_name], **more}


@pytest.fixture
def project(lab_dry, tmp_path) -> Project:
    """A project with one SSH key and no servers; machines keep their power state only."""
    return Project(lab_dry, tmp_path)


@pytest.fixture
def real_project(lab_nspawn, tmp_path) -> Iterator[Project]:
    """A project whose machines really boot. The lab is shared: what a test made is deleted after it."""
    project = Project(lab_nspawn, tmp_path, key_name=f"hcloud-{tmp_path.name}")
    present = set(project.servers())
    yield project
    for name, server in project.servers().items():
        if name not in present:
            project.call("DELETE", f"/servers/{server['id']}")
    project.call("DELETE", f"/ssh_keys/{project.key_id}")
