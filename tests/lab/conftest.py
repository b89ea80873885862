# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's command line, as a person or a Makefile uses it, and places for machines without a lab around them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dev.toolchain.paths import CHECKOUT
from lab.machines.backend import Backend, open_backend
from tests.lab.machines.guest import Key


class Cli:
    """Runs ``python -m lab`` with a state folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {**os.environ, "KUBENODE_LAB_DIR": str(folder)}
        self.env.pop("KUBENODE_LAB_TOKEN", None)

    def _done(self, arguments, code, env):
        command = [sys.executable, "-m", "lab", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=CHECKOUT, env=self.env | env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def run(self, *arguments, code=0, **env):
        """What it prints."""
        return self._done(arguments, code, env).stdout

    def fails(self, *arguments):
        """What it says on standard error when it fails."""
        return self._done(arguments, 1, {}).stderr

    def up(self, *arguments, **env):
        """Start a dry lab; what it says of itself."""
        return json.loads(self.run("up", "--kind", "dry", "--json", *arguments, **env))


@pytest.fixture
def cli(tmp_path):
    """What was started is stopped afterwards."""
    cli = Cli(tmp_path / "labs")
    yield cli
    cli.run("down")


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """A key of our own."""
    return Key.make(tmp_path)


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncIterator[Backend]:
    """Where machines of a kind run."""
    opened = await open_backend(kind, "test", folder / "site")
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def nspawn_backend(tmp_path: Path) -> AsyncIterator[Backend]:
    async with place("nspawn", tmp_path) as opened:
        yield opened


@pytest.fixture
async def qemu_backend(tmp_path: Path) -> AsyncIterator[Backend]:
    async with place("qemu", tmp_path) as opened:
        yield opened
