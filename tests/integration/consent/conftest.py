# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of consent share: a mount namespace of their own, so that mounts of a test end with it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.toolchain.paths import CHECKOUT

_PREPARE = "import sys; sys.path[:0] = {paths!r}\n"


@pytest.fixture
def in_namespace() -> Callable[[str], str]:
    """Run Python in a mount namespace of its own, as root; its standard output. `sh` in it runs a shell line."""

    def run(code: str) -> str:
        script = (
            _PREPARE.format(paths=[*os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep), *filter(None, sys.path)])
            + "import subprocess\n"
            + "def sh(line): subprocess.run(line, shell=True, check=True)\n"
            + textwrap.dedent(code)
        )
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", script],
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
