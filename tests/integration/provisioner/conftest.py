# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program built around this collection, with playbooks that only report their variables."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dev.toolchain import release
from dev.toolchain.paths import CHECKOUT
from tests.integration.runs import LIMIT

PLAYBOOKS = Path(__file__).parent / "playbooks"


def telling() -> Iterator[tuple[str, bytes]]:
    """The collection with the playbooks of this folder in place of its own."""
    for name, data in release.collection_files(CHECKOUT):
        own = PLAYBOOKS / Path(name).name
        yield name, own.read_bytes() if name.startswith("playbooks/") and own.is_file() else data


@pytest.fixture(scope="session")
def sources() -> list[tuple[str, bytes]]:
    """What the collection inside the program is made of."""
    return list(telling())


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory, sources: list[tuple[str, bytes]]) -> Path:
    """The program as a file that can be run."""
    path = tmp_path_factory.mktemp("program") / "provision"
    path.write_bytes(release.provision_program(sources, "1.2.3", preset=0))
    path.chmod(0o755)
    return path


@dataclass
class Machine:
    """Runs of the program with a state folder of its own on this host."""

    program: Path
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reported.mkdir(mode=0o700, exist_ok=True)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def reported(self) -> Path:
        """Where the playbooks write what they were given."""
        return self.folder / "reported"

    def command(self, *arguments: str) -> list[str]:
        return [str(self.program), "--state-dir", str(self.state), *arguments]

    def start(self, *arguments: str, **options) -> subprocess.Popen[str]:
        """Start a run and do not wait for it."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        environment = {"PATH": os.environ["PATH"], "REPORT_DIR": str(self.reported), "LANG": "C", **self.environment}
        return subprocess.Popen(self.command(*arguments), env=environment, text=True, **pipes)

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run to the end, which has to be of this exit code."""
        with self.start(*arguments, stdin=subprocess.PIPE) as process:
            stdout, stderr = process.communicate(stdin, timeout=LIMIT)
        assert process.returncode == code, stdout + stderr
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def machine(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """This host with an empty state folder."""
    return Machine(program, tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def used(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Machine]:
    """This host with a state folder that the tests of a module share, so that only the first run unpacks."""
    state = tmp_path_factory.mktemp("used")

    def make() -> Machine:
        machine = Machine(program, state)
        for path in machine.reported.iterdir():
            path.unlink()
        return machine

    return make
