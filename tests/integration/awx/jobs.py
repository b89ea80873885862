# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of AWX: jobs by ansible-runner, each in a container and a folder of its own, as AWX's templates have them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import awx
from dev.toolchain import environments
from tests.waiting import until

from .containers import LIMIT, Engine

MOUNTED = "/var/lib/kubenode"


class Job:
    """One job: its container, and what AWX keeps of it."""

    def __init__(self, process: subprocess.Popen[bytes], private: Path, name: str) -> None:
        self._process, self._artifacts = process, private / "artifacts" / name
        #: the folder of its own: what the container has as /runner
        self.private = private

    @property
    def output(self) -> str:
        """What it printed so far."""
        path = self._artifacts / "stdout"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def status(self) -> str:
        """AWX's word for its end."""
        return (self._artifacts / "status").read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its events in their order."""
        found = [json.loads(path.read_text()) for path in (self._artifacts / "job_events").glob("*-*.json")]
        return sorted(found, key=lambda event: event["counter"])

    @property
    def end(self) -> dict[str, Any]:
        """The data of its last event: ``changed``, and ``artifact_data`` for the next job of a workflow."""
        (last,) = [event for event in self.events if event["event"] == "playbook_on_stats"]
        return dict(last["event_data"])

    def until(self, text: str) -> None:
        """Wait until it has printed a text."""

        def printed() -> bool:
            ended = self._process.poll() is not None
            assert text in self.output or not ended, f"the job ended before: {text}\n{self.output}"
            return text in self.output

        until(printed, text, seconds=LIMIT, pause=0.3, show=lambda: self.output)

    def wait(self) -> Job:
        self._process.wait(LIMIT)
        return self

    def cancel(self) -> Job:
        """As AWX does when a person cancels a job: its container is killed."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End what is left of it."""
        if self._process.poll() is None:
            self.cancel()


class AwxNode:
    """Where jobs run. ``secrets``: what no event and no output of a job may have."""

    def __init__(self, engine: Engine, image: str, folder: Path) -> None:
        self.engine, self.image, self.folder = engine, image, folder
        self.secrets: set[str] = set()
        self.jobs: list[Job] = []

    def start(
        self,
        playbook: str,
        machines: Mapping[str, Any],
        key: Path,
        credentials: Mapping[str, str],
        *flags: str,
        mounted: Path | None = None,
        kept: bool = True,
        artifacts: Mapping[str, Any] | None = None,
    ) -> Job:
        """Start a job of our template for a playbook.

        ``machines``: the group of the inventory; ``key``: of the credential ``ssh``; ``credentials``: what those of
        other types put into the environment; ``mounted``: a folder that outlives jobs, which is ``kubenode_awx_dir``
        when it is ``kept``; ``artifacts``: what the job before it in a workflow has handed on.
        """
        name = f"job-{len(self.jobs) + 1}"
        private = self.folder / name
        plan = awx.awx_plan(
            {
                "kubenode_awx_image": self.image, "kubenode_awx_project_url": "unused",
                "kubenode_awx_playbooks": [playbook], "kubenode_awx_workflows": [],
                **({"kubenode_awx_dir": MOUNTED} if mounted and kept else {}),
            },
            {},
        )  # fmt: skip
        (template,) = plan["templates"]
        for file in plan["files"]:
            path = private / "project" / file["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"])
        for path, content in {
            "inventory/hosts.yml": yaml.safe_dump({"machines": dict(machines)}),
            "env/extravars": json.dumps({**template["extra_vars"], **(artifacts or {})}),
            # AWX lets ssh take any host key, unless its administrator has changed that
            "env/envvars": json.dumps({"ANSIBLE_HOST_KEY_CHECKING": "False", **credentials}),
            "env/ssh_key": key.read_text(),
        }.items():
            (private / path).parent.mkdir(exist_ok=True)
            (private / path).write_text(content)
        self.secrets |= {value for one, value in credentials.items() if one.endswith(("TOKEN", "PASSWORD"))}
        self.secrets.update(key.read_text().splitlines()[1:-1])
        words = [
            environments.ensure("awx") / "bin/ansible-runner", "run", private, "--ident", f"kubenode-test-{name}",
            "-p", template["playbook"], "--process-isolation", "--process-isolation-executable", "podman",
            # podman of root maps no users: the image's user is one that cannot write the job's folder
            "--container-image", self.image, "--container-option=--user=root",
        ]  # fmt: skip
        if mounted:
            words.append(f"--container-volume-mount={mounted}:{MOUNTED}")
        if flags:
            words.append(f"--cmdline={' '.join(flags)}")
        process = subprocess.Popen(
            list(map(str, words)), env=self.engine.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self.jobs.append(Job(process, private, f"kubenode-test-{name}"))
        return self.jobs[-1]

    def clean(self) -> None:
        """No secret is in what AWX keeps and shows of the jobs."""
        for job in self.jobs:
            text = job.output + json.dumps(job.events)
            assert len(job.events) > 5
            for secret in self.secrets:
                assert secret not in text

    def close(self) -> None:
        for job in self.jobs:
            job.kill()
