# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages inside `provision`: wheels of the lock, without what only one kind of machine could run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import environments
from .paths import REQUIREMENTS, cache
from .report import SetupError, step

LOCK = REQUIREMENTS / "provision.txt"
#: the wheels of one platform, wherever this runs: their Python part is everybody's
_PLATFORM = ["--platform", "manylinux2014_x86_64", "--implementation", "cp", "--python-version", "3.11"]
_ABIS = ["--abi", "cp311", "--abi", "abi3", "--abi", "none"]
#: compiled parts, which PyYAML and MarkupSafe do without; tests; lists of files that are then wrong
_LEFT_OUT = (".so", ".pyc", ".pyx", ".pxd", ".c", "/RECORD", "/INSTALLER")
_LEFT_OUT_FOLDERS = ("ansible_test/",)


def files() -> Iterator[tuple[str, bytes]]:
    """Every file of every package as (path below site-packages, content)."""
    for wheel in sorted(_downloaded().glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                folder = name.split("/")[0]
                left_out = name.endswith(("/", *_LEFT_OUT)) or name.startswith(_LEFT_OUT_FOLDERS)
                if not left_out and not folder.endswith(".data"):
                    yield name, archive.read(name)


def _downloaded() -> Path:
    """A folder with the wheels, fetched once for each lock; pip compares their hashes."""
    folder = cache() / ("wheels-provision-" + hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12])
    if (folder / "complete").exists():
        return folder
    command = environments.pip()
    with environments.locked("wheels-provision"):
        if not (folder / "complete").exists():
            with step("packages of provision"):
                shutil.rmtree(folder, ignore_errors=True)
                done = subprocess.run(
                    [*command, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
                    + [*_PLATFORM, *_ABIS, "--dest", str(folder), "-r", str(LOCK)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                if done.returncode:
                    raise SetupError(
                        "downloading %s failed:\n%s" % (LOCK, done.stdout.decode(errors="replace")[-2000:])
                    )
                (folder / "complete").touch()
    return folder
