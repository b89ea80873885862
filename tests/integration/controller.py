# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's controller: a folder of its own with key and inventory, Ansible run from there, and what every task said."""

import contextlib
import functools
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.nodes import Node
from tests.integration import programs
from tests.integration.runs import LIMIT, Run, Running
from tests.key_pairs import key_pair
from tests.waiting import until

RECORDER = Path(__file__).parent / "recorder"
#: Options of an SSH that asks for nothing and trusts any host key.
SSH = ("-F", "none", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR")
ANY_HOST_KEY = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
_NO_CONNECTION = 255  # of ssh


def pinned(known_hosts: Path) -> list[str]:
    """Options of an SSH that trusts nothing but the host keys in a file, which stand there by its name."""
    return [
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        f"UserKnownHostsFile={known_hosts}",
        "-o",
        f"HostKeyAlias={known_hosts.name}",
    ]


def collections_path(installed: Path) -> str:
    """Where Ansible looks for collections when a user has installed ours in a folder: there first."""
    return os.pathsep.join([str(installed), os.environ["ANSIBLE_COLLECTIONS_PATH"]])


class Controller:
    """Runs Ansible; everything it writes is below its folder. ``hosts``: variables by name, for every run."""

    def __init__(self, lab: Any, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.pins = folder / "pins"
        self.hosts: dict[str, dict[str, Any]] = {}
        self._runs: list[Running] = []
        self._numbers = itertools.count(1)
        # apart, since the path of a socket may have a hundred bytes only
        self._sockets = tempfile.mkdtemp(prefix="kubenode-cp-")
        weakref.finalize(self, shutil.rmtree, self._sockets, True)

    @functools.cached_property
    def key(self) -> Path:
        return self.new_key("id_ed25519")

    @property
    def public_key(self) -> str:
        """The line of the user's public key."""
        return self.key.with_suffix(".pub").read_text()

    def new_key(self, name: str) -> Path:
        """Make an SSH key pair; returns the file of its private half."""
        path = self.folder / name
        key_pair(path, comment="")
        return path

    def fault(self, **fault: object) -> None:
        """Add a fault to the lab's script."""
        self.lab.control("POST", "/faults", fault)

    def forget_faults(self) -> None:
        """The lab works again."""
        self.lab.control("DELETE", "/faults")

    def forget_requests(self) -> None:
        """Count from here."""
        self.lab.control("DELETE", "/requests")

    def asked(self, api: str = "") -> list[dict[str, Any]]:
        """The requests that the lab, or one API of it, got, oldest first."""
        return [one for one in self.lab.control("GET", "/requests")["requests"] if api in ("", one["api"])]

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables that keep Ansible, and what it remembers, below the folder."""
        return {
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_SSH_PIPELINING": "true",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self._sockets,
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the user who runs Ansible, with the credentials of the lab."""
        return {**os.environ, **(self.lab.env if self.lab else {}), **self.settings}

    def add_nodes(self, *nodes: Node, **variables: object) -> None:
        """Put nodes of the lab into the inventory."""
        for node in nodes:
            self.hosts[node.name] = {**node.inventory, **variables}

    def reach(self, name: str, address: str, **variables: object) -> None:
        """Put a machine that our key opens into the inventory."""
        self.hosts[name] = {
            "ansible_host": address,
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.key),
            **variables,
        }

    def begin(self, command: Sequence[str], cwd: Path) -> Running:
        """Begin to run any command line in a folder."""
        folder, _inventory = self.run_folder([], {})
        return self._start(command, folder, {}, cwd)

    def start_module(
        self, host: str, module: str, /, *flags: str, env: Mapping[str, str] | None = None, **options: object
    ) -> Running:
        """Begin to run one of our modules on a host."""
        folder, inventory = self.run_folder([host] if host in self.hosts else [], {})
        command = ["ansible", host, "-i", inventory, "-m", f"kubenode.provision.{module}", "-a", json.dumps(options)]
        local = {"ANSIBLE_REMOTE_TEMP": str(self.folder / "tmp")} if host == "localhost" else {}
        return self._start([*command, *flags], folder, {**local, **(env or {})})

    def module(
        self, host: str, module: str, /, *flags: str, env: Mapping[str, str] | None = None, **options: object
    ) -> Run:
        """Run one of our modules on a host."""
        return self.start_module(host, module, *flags, env=env, **options).wait()

    def start_play(
        self,
        playbook: str | list[Any],
        /,
        *flags: str,
        hosts: Iterable[str] = (),
        shared: Mapping[str, object] | None = None,
        env: Mapping[str, str] | None = None,
        **variables: object,
    ) -> Running:
        """Begin to run a playbook, or one given as data; ``shared`` are variables of the inventory.

        ``variables`` go on the command line and win over those of the inventory; ``hosts``: only these.
        """
        folder, inventory = self.run_folder(list(hosts) or list(self.hosts), shared or {})
        command = ["ansible-playbook", "-i", inventory]
        if variables:
            _write(folder / "variables.yml", variables)
            command += ["-e", f"@{folder / 'variables.yml'}"]
        if not isinstance(playbook, str):
            _write(folder / "playbook.yml", playbook)
            playbook = str(folder / "playbook.yml")
        return self._start([*command, playbook, *flags], folder, env or {})

    def process(self, module: str, /, *, env: Mapping[str, str] | None = None, **options: object) -> Run:
        """Run one of our modules as Ansible starts it: a process, with the options on its standard input.

        That spares the start of Ansible, which takes most of the time where no machine is concerned.
        """
        folder, _inventory = self.run_folder([], {})
        environment = {**self.environment, "PYTHONPATH": os.environ["ANSIBLE_COLLECTIONS_PATH"], **(env or {})}
        done = programs.module(module, options, environment, folder, LIMIT)
        run = Run(done.returncode, done.stdout + done.stderr)
        assert done.stdout.startswith("\n{"), run.output
        run.results = [{"host": "localhost", "task": module, "action": module, "result": json.loads(done.stdout)}]
        return run

    def play(self, playbook: str | list[Any], /, *flags: str, limit: float = LIMIT, **options: Any) -> Run:
        """Run a playbook; options as of `start_play`. ``limit``: seconds."""
        return self.start_play(playbook, *flags, **options).wait(limit)

    def ssh(self, host: str, script: str, trust: Sequence[str] = ANY_HOST_KEY) -> str:
        """What a script prints on a machine, which may still boot; the user's own SSH, apart from Ansible's."""
        command = [
            "ssh",
            *SSH,
            "-o",
            "ConnectTimeout=60",
            *trust,
            "-i",
            str(self.key),
            f"root@{self.hosts[host]['ansible_host']}",
            script,
        ]
        seen: list[subprocess.CompletedProcess[str]] = []

        def answered() -> bool:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False
            )
            seen[:] = [done]
            return done.returncode != _NO_CONNECTION

        until(answered, f"SSH to {host}", seconds=900, pause=0.3, show=lambda: seen[0].stderr)
        assert seen[0].returncode == 0, (script, seen[0].stdout, seen[0].stderr)
        return seen[0].stdout

    def at_work(self) -> list[bytes]:
        """The processes of runs: also those that lead a session of their own, as Ansible's workers do."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "cwd") == str(self.folder):
                    found.append((process / "cmdline").read_bytes())
        return found

    def end_of_all(self) -> None:
        """Wait until no process of any run is left, also of one that was killed."""
        until(lambda: not self.at_work(), "the end of every process of the runs", show=self.at_work)

    def stop(self) -> None:
        """End what a test left running."""
        for run in self._runs:
            run.kill()

    def run_folder(self, hosts: Iterable[str], shared: Mapping[str, object]) -> tuple[Path, str]:
        """A folder for one run, and its inventory."""
        folder = self.folder / f"run-{next(self._numbers)}"
        folder.mkdir(parents=True)
        content = {"hosts": {name: self.hosts.get(name, {}) for name in hosts}, "vars": dict(shared)}
        _write(folder / "inventory.yml", {"all": content})
        return folder, str(folder / "inventory.yml")

    def _start(self, command: Sequence[str], folder: Path, more: Mapping[str, str], cwd: Path | None = None) -> Running:
        environment = self.environment
        recorded = {
            "ANSIBLE_CALLBACK_PLUGINS": str(RECORDER),
            "ANSIBLE_CALLBACKS_ENABLED": ",".join(
                filter(None, ["recorder", environment.get("ANSIBLE_CALLBACKS_ENABLED")])
            ),
            "ANSIBLE_LOAD_CALLBACK_PLUGINS": "true",
            "KUBENODE_TEST_RECORD": str(folder / "record.jsonl"),
        }
        self._runs.append(Running(command, {**environment, **recorded, **more}, folder, cwd or self.folder))
        return self._runs[-1]


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
