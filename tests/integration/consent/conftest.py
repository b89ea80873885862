# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An operator, other people beside him, and machines that boot: what is written, reset, removed and called verified."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.testbed import CHECKOUT, Testbed
from tests.integration.accounts import CloudCalls, RobotCalls
from tests.integration.runs import Run
from tests.integration.testbeds import Operator, cloud_testbed, dedicated_testbed
from tests.waiting import until

_PREPARE = "import sys; sys.path[:0] = {paths!r}\n"
DONE = "echo IMAGE_URL_DONE\n"
#: Seconds in which a machine boots, however loaded the host is.
BOOTS = 180
#: Words of a run that must see what a machine runs: it waits for as long as a machine may need to answer.
SEEN = ("-e", "kubenode_look_timeout=180")
#: One disk of a dedicated server.
DISK = {"size": "4G", "kind": "sata"}


class Scene(CloudCalls, RobotCalls, Operator[Testbed]):
    """A lab, the operator's playbook runs in it, and what other people do at the same time."""

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        self.commands = testbed.folder / "commands"
        self.commands.mkdir()

    # --- the operator

    def inventory(self, hosts: dict[str, dict[str, Any]], **variables: Any) -> None:
        """An ordinary inventory of cloud machines, with variables of single hosts.

        The limits are for hangs: a host that has nothing to boot, or must not be seen, has a short one of its own.
        """
        common = {
            "kubenode_boot_timeout": BOOTS,
            "kubenode_rescue_timeout": BOOTS,
            "kubenode_command_dir": str(self.commands),
        }
        path = self.testbed.write_inventory(list(hosts), **{**common, **variables})
        content = yaml.safe_load(path.read_text())
        content["machines"]["hosts"] = hosts
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def servers(self, hosts: dict[str, dict[str, Any]], **variables: Any) -> None:
        """The same of dedicated servers; of those that nothing was written to the look is short, SEEN is for others."""
        common = {"kubenode_boot_timeout": BOOTS, "kubenode_command_dir": str(self.commands)}
        super().servers(hosts, **{**common, **variables})

    def record(self, name: str) -> dict[str, str]:
        """The installed record of the system that runs on a machine."""
        return json.loads(self.shell(name, "cat /etc/kubenode/installed.json"))

    def run(self, *arguments: str, **options: Any) -> Run:
        """Run the playbook; what it printed is in ``output``, what came of it in the report."""
        self.testbed.report.unlink(missing_ok=True)
        return super().run(*arguments, **options)

    def machine(self, name: str) -> dict[str, Any]:
        """What the last run's report says of a machine."""
        (found,) = [machine for machine in self.report["machines"] if machine["name"] == name]
        return found

    def command(self, name: str, script: str) -> dict[str, str]:
        """Write an image command of the operator's own; returns the variable that names it."""
        path = self.commands / f"image-url-command-{name}"
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)
        return {"kubenode_image_url_command": path.name}

    # --- other people

    def dedicated_into_rescue(self, name: str, number: int) -> None:
        """A person boots a dedicated server into its rescue."""
        before = self.wait_for(name)
        (key,) = [one["key"] for one in self.robot("GET", "/key")][:1]
        self.robot("POST", f"/boot/{number}/rescue", {"os": "linux", "authorized_key[]": key["fingerprint"]})
        self.dedicated_reset(name, number, before)

    def dedicated_reset(self, name: str, number: int, before: str = "") -> None:
        """A person presses the reset button of a dedicated server."""
        self.robot("POST", f"/reset/{number}", {"type": "hw"})
        until(lambda: self.wait_for(name) != before, f"another boot of {name}", pause=0.5)

    def into_rescue(self, name: str) -> None:
        """A person boots a server into its rescue, in order to repair it."""
        before = self.boots(name)
        keys = [key["id"] for key in self.call("GET", "/ssh_keys")["ssh_keys"]]
        self.act(name, "enable_rescue", {"type": "linux64", "ssh_keys": keys})
        self.act(name, "reset")
        assert self.boots(name) != before
        self.wait_for(name)

    def shell(self, name: str, script: str, check: bool = True) -> str:
        """What a script prints on the system that the machine runs; a person's own SSH.

        A person tries again until a machine lets him in, unless he only wants to know whether it does (``check``).
        """
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        words = ["ssh", "-F", "none", *[f"-o{option}" for option in options], "-oConnectTimeout=20"]
        words += ["-oServerAliveInterval=15", "-oServerAliveCountMax=12"]
        words += ["-i", str(self.testbed.private_key), f"root@{self.testbed.address(name)}", script]

        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

        if not check:
            return call().stdout
        tried: list[subprocess.CompletedProcess[str]] = []

        def let_in() -> bool:
            tried.append(call())
            return tried[-1].returncode != 255

        until(let_in, f"a login at {name}", pause=0.5, show=lambda: tried[-1].stderr)
        assert tried[-1].returncode == 0, (script, tried[-1].stdout, tried[-1].stderr)
        return tried[-1].stdout

    def wait_for(self, name: str) -> str:
        """Wait until the machine answers; returns the boot id of what does."""
        ask = "cat /proc/sys/kernel/random/boot_id"
        return until(lambda: self.shell(name, ask, check=False).strip(), f"an answer of {name}", pause=0.5)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Cloud machines that boot."""
    with Scene.of(cloud_testbed(tmp_path_factory.mktemp("cloud"))) as scene:
        yield scene


@pytest.fixture(scope="module")
def dedicated(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Dedicated servers that boot; a module lists them as ``SERVERS``."""
    with Scene.of(dedicated_testbed(tmp_path_factory.mktemp("dedicated"), request.module.SERVERS)) as scene:
        yield scene


@pytest.fixture
def in_namespace() -> Callable[[str], str]:
    """Run Python in a mount namespace of its own, as root; its standard output. `sh` in it runs a shell line.

    What others unmount meanwhile is unmounted there, too: a mount that is held busies its device for everybody.
    """

    def run(code: str) -> str:
        script = (
            _PREPARE.format(paths=[*os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep), *filter(None, sys.path)])
            + "import subprocess\n"
            + "def sh(line): subprocess.run(line, shell=True, check=True)\n"
            + textwrap.dedent(code)
        )
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "slave", sys.executable, "-c", script],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Files of the user."""
    folder = tmp_path / "precious"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/file").write_text("precious")
    (folder / "file").write_text("precious")
    return folder


def intact(folder: Path) -> bool:
    """Whether every file of `precious` is there as it was."""
    return all((folder / name).read_text() == "precious" for name in ("file", "deep/file"))
