# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python environments made from the lock files; each is made when a command first needs it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import pythons
from .paths import REQUIREMENTS, cache
from .report import SetupError, say, step


@dataclass(frozen=True)
class Environment:
    """One environment: its lock file and the Pythons it supports."""

    name: str
    minimum: pythons.Version
    maximum: pythons.Version
    purpose: str

    @property
    def lock(self) -> Path:
        """The lock file with hashes."""
        return REQUIREMENTS / (self.name + ".txt")

    @property
    def folder(self) -> Path:
        """Where the environment lies; another lock means another folder."""
        digest = hashlib.sha256(self.lock.read_bytes()).hexdigest()[:12]
        return cache() / ("venv-%s-%s" % (self.name, digest))


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("main", (3, 11), (3, 13), "ansible-core 2.19, the lab, all tests, most linters"),
        Environment("core-2.18", (3, 11), (3, 13), "sanity and unit tests on ansible-core 2.18"),
        Environment("core-2.21", (3, 12), (3, 14), "sanity and unit tests on ansible-core 2.21"),
        Environment("importer", (3, 11), (3, 13), "galaxy-importer"),
        Environment("docs", (3, 11), (3, 13), "the HTML documentation"),
    )
}

#: ansible-core version → environment
CORES = {"2.18": "core-2.18", "2.19": "main", "2.21": "core-2.21"}


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process at a time makes this part of the cache."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / (name + ".lock")).open("w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def uv() -> Path:
    """The uv of this checkout's lock, in an environment of its own; the rest is installed with it."""
    lock = REQUIREMENTS / "uv.txt"
    folder = cache() / ("uv-" + hashlib.sha256(lock.read_bytes()).hexdigest()[:12])
    with locked("uv"):
        if not (folder / "complete").exists():
            with step("uv, the installer"):
                shutil.rmtree(folder, ignore_errors=True)
                _run([sys.executable, "-m", "venv", str(folder)], hint="is the Debian package python3-venv installed?")
                _run([_python(folder), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)])
                (folder / "complete").touch()
    return folder / "bin" / "uv"


def ensure(name: str) -> Path:
    """Folder of the named environment, made when it is not there."""
    environment = ENVIRONMENTS[name]
    folder = environment.folder
    if (folder / "complete").exists():
        return folder
    installer = uv()
    with locked(name):
        if not (folder / "complete").exists():
            with step("environment %s (%s)" % (name, environment.purpose)):
                shutil.rmtree(folder, ignore_errors=True)
                interpreter = _interpreter(environment, installer)
                _run([str(installer), "venv", "--quiet", "--python", str(interpreter), str(folder)])
                _run(
                    [str(installer), "pip", "install", "--quiet", "--require-hashes", "--python", _python(folder)]
                    # compiled once here instead of by many short-lived processes at the same time
                    + ["--compile-bytecode", "-r", str(environment.lock)]
                )
                (folder / "complete").touch()
    return folder


def pip() -> list[str]:
    """A command line for pip, for what uv cannot do (downloading a wheel)."""
    return [_python(uv().parents[1]), "-m", "pip"]


def _interpreter(environment: Environment, installer: Path) -> Path:
    """An interpreter of this machine for the environment, or one that uv installs."""
    low, high = environment.minimum, environment.maximum
    found = pythons.find(low, high)
    if found:
        return found
    say("no Python %d.%d … %d.%d here, uv installs one" % (*low, *high))
    _run(
        [str(installer), "python", "install", "%d.%d" % low],
        hint="environment %s needs Python %d.%d … %d.%d and none runs here (PATH, pyenv, uv); please install one"
        % (environment.name, *low, *high),
    )
    found = pythons.find(low, high)
    if not found:
        raise SetupError("uv installed Python %d.%d, but it does not run" % low)
    return found


def _python(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _run(command: list[str], hint: str = "") -> None:
    """Run one installation step; its output is shown only when it fails."""
    environment = dict(os.environ)
    # one folder holds everything; hard links from uv's cache into the environments need one file system
    environment.update(UV_CACHE_DIR=str(cache() / "uv-cache"), UV_PYTHON_INSTALL_DIR=str(pythons.uv_folder()))
    environment.setdefault("UV_HTTP_TIMEOUT", "120")
    # a network with a certificate authority of its own has put it into the system's store
    environment.setdefault("UV_SYSTEM_CERTS", "true")
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        output = done.stdout.decode(errors="replace").strip()[-3000:]
        raise SetupError("\n".join(filter(None, [" ".join(command) + " failed:", output, hint])))
