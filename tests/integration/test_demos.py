# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every demo as the Makefile runs it: its exit code, its last words, what it leaves to look at, and no lab."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.demos.__main__ import FUNCTIONS
from dev.toolchain.paths import CHECKOUT
from lab.state import State

pytestmark = pytest.mark.timeout(4800)

REPORT = "provision-report.json"
DONE = "done; the report of the first run: {folder}/" + REPORT
CLUSTER, QEMU = pytest.mark.cluster, pytest.mark.qemu


def demo(name: str, folder: str, said: str, left: str, *marks: pytest.MarkDecorator, code: int = 0) -> Any:
    """``said``: a line of its end; ``left``: a file in its folder; ``marks`` choose its part of the long run."""
    return pytest.param(name, CHECKOUT / "build" / folder, code, said, left, marks=marks, id=name)


DEMOS = (
    demo("cloud", "demo", DONE, REPORT, pytest.mark.nspawn, pytest.mark.long),
    demo("fleet", "demo-fleet", "the page of this run: {folder}/provision-report.html", "provision-report.html",
         pytest.mark.nspawn, pytest.mark.fleet, code=1),
    demo("robot", "demo-robot", DONE, REPORT, QEMU),
    demo("node", "demo-node", DONE, REPORT, CLUSTER),
    demo("site", "demo-site", DONE, REPORT, CLUSTER),
    demo("node-images", "demo-image", "done; logs and the tarball: {folder}", "kubenode/tarballs/*.tar.zst", CLUSTER),
    demo("live-images", "demo-images", "every byte was right, every Ignition came back as it was embedded",
         "urls.json", QEMU),
)  # fmt: skip


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a demo's lab writes down what it is, apart from those of other runs; one that is still up is stopped."""
    with tempfile.TemporaryDirectory(prefix="labs-") as short:  # the path of a socket may have a hundred bytes only
        monkeypatch.setenv("KUBENODE_LAB_DIR", short)
        yield Path(short)
        for name in up(Path(short)):
            subprocess.run([sys.executable, "-m", "lab", "down", "--name", name], cwd=CHECKOUT, check=True)


def up(labs: Path) -> list[str]:
    """The labs that are up."""
    return [lab.name for lab in labs.glob("*") if State(lab.name).running()]


@pytest.mark.parametrize(("name", "folder", "code", "said", "left"), DEMOS)
def test_demo_ends_well(name: str, folder: Path, code: int, said: str, left: str, labs: Path) -> None:
    command = [CHECKOUT / "dev/demo", name]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert f"demo: {said.format(folder=folder)}" in done.stdout.splitlines(), printed
    assert list(folder.glob(left)), printed
    assert not up(labs), printed
    shutil.rmtree(folder)


def test_every_demo_of_the_makefile_is_run_here() -> None:
    made = re.findall(r"^\t@dev/demo ?(.*)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert {name or "cloud" for name in made} == set(FUNCTIONS) == {one.values[0] for one in DEMOS}
