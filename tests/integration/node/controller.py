# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's controller for nodes of the lab: inventory, ansible-playbook, and what every task said."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab import mirror
from lab.nodes import Node

CHECKOUT = Path(__file__).parents[3]
#: Tasks that run on the controller alone; all others are a round trip to the machine.
LOCAL = {"assert", "debug", "fail", "include_vars", "set_fact", "validate_argument_spec", "include_tasks"}


class Play:
    """One finished run of ansible-playbook."""

    def __init__(self, code: int, output: str, record: Path) -> None:
        self.code, self.output = code, output
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
        self.results: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def of(self, host: str, kind: str = "ok") -> list[dict[str, Any]]:
        """What the tasks of one host said."""
        return [entry for entry in self.results if entry["host"] == host and entry["kind"] == kind]

    def remote(self, host: str) -> list[str]:
        """The names of the tasks that ran on a machine, in order."""
        return [entry["task"] for entry in self.of(host) if entry["action"].rpartition(".")[2] not in LOCAL]

    def changed(self, host: str) -> list[str]:
        """The names of the tasks that changed something."""
        return [entry["task"] for entry in self.of(host) if entry["result"].get("changed")]

    def settings(self, host: str) -> set[str]:
        """The ids of all settings that changed, or would in check mode."""
        steps = [step for entry in self.of(host) for step in entry["result"].get("steps", [])]
        return {step["id"] for step in steps if step["changed"]}

    def fetched(self, host: str) -> list[str]:
        """The names of the downloads that were made, or would be in check mode."""
        found = [one for entry in self.of(host) for one in entry["result"].get("artifacts", [])]
        return sorted(one["name"] for one in found if one["changed"])

    def error(self, host: str) -> str:
        """What the failed task of a host said."""
        (entry,) = self.of(host, "failed")
        return entry["result"]["msg"]


class Controller:
    """Runs playbooks on nodes of a lab; everything it writes is below its folder."""

    def __init__(self, lab: Any, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.hosts: dict[str, dict[str, Any]] = {}
        self._runs = 0

    def add(self, *nodes: Node, **variables: object) -> None:
        """Put machines into the inventory."""
        for node in nodes:
            self.hosts[node.name] = {**node.inventory, **variables}

    def run(
        self,
        playbook: str | list[Any],
        *arguments: str,
        hosts: Iterable[str] = (),
        limit: float = 560,
        **variables: object,
    ) -> Play:
        """Run a playbook of the collection, or one given as data. ``limit``: seconds."""
        self._runs += 1
        base = self.folder / str(self._runs)
        base.mkdir(parents=True)
        wanted = list(hosts) or list(self.hosts)
        _write(base / "inventory.yml", {"all": {"hosts": {name: self.hosts[name] for name in wanted}}})
        _write(base / "variables.yml", variables)
        if not isinstance(playbook, str):
            _write(base / "playbook.yml", playbook)
            playbook = str(base / "playbook.yml")
        command = ["ansible-playbook", "-i", str(base / "inventory.yml"), "-e", f"@{base / 'variables.yml'}"]
        done = subprocess.run(
            [*command, *arguments, playbook],
            env=self._environment(base),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit,
            check=False,
        )
        return Play(done.returncode, done.stdout, base / "record.jsonl")

    def _environment(self, base: Path) -> Mapping[str, str]:
        return {
            **os.environ,
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_TIMEOUT": "60",
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
            "ANSIBLE_HOME": str(self.folder / "home"),
            # short, since the path of a socket may have a hundred bytes only
            "ANSIBLE_SSH_CONTROL_PATH_DIR": f"/tmp/kubenode-cp-{os.getpid()}",
            "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).parent / "recorder"),
            "ANSIBLE_CALLBACKS_ENABLED": "recorder",
            "KUBENODE_TEST_RECORD": str(base / "record.jsonl"),
        }


def mirrored(lab: Any, suite: str = "trixie") -> dict[str, Any]:
    """Variables of base with which everything comes from the lab's mirror, in versions that it has for a suite."""
    containerd, runc = {"trixie": ("1.7.24", "1.1.15"), "bookworm": ("1.6.20", "1.1.5")}[suite]
    return {
        "base_mirror": lab.mirror_url,
        "base_checksums": mirror.checksums("containerd", "runc", "cni-plugins", "crictl", "kubelet"),
        "base_kubernetes_version": "1.36.4",
        "base_containerd_version": containerd,
        "base_runc_version": runc,
        "base_cni_plugins_version": "1.1.1",
        # Debian's containerd is older than what Kubernetes 1.36 wants
        "base_version_check": "warn",
    }


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
