# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other people's collections, from the `ansible` package: the chosen ones only, pinned by its hash."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from . import environments
from .paths import REQUIREMENTS, cache
from .report import SetupError, step

LOCK = REQUIREMENTS / "bundle.txt"
CHOSEN = REQUIREMENTS / "collections.txt"


def chosen() -> list[str]:
    """Names of the collections taken from the package."""
    lines = (line.partition("#")[0].strip() for line in CHOSEN.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def ensure() -> Path:
    """A folder for ANSIBLE_COLLECTIONS_PATH with the chosen collections."""
    digest = hashlib.sha256(LOCK.read_bytes() + "\n".join(chosen()).encode()).hexdigest()[:12]
    folder = cache() / ("collections-" + digest)
    if (folder / "complete").exists():
        return folder
    command = environments.pip()
    with environments.locked("collections"):
        if not (folder / "complete").exists():
            with step("collections " + " ".join(chosen())):
                shutil.rmtree(folder, ignore_errors=True)
                with tempfile.TemporaryDirectory(dir=cache()) as download:
                    _unpack(_download(command, Path(download)), folder)
                (folder / "complete").touch()
    return folder


def _download(pip: list[str], folder: Path) -> Path:
    """Fetch the pinned wheel; pip compares its hash."""
    done = subprocess.run(
        [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--require-hashes"]
        + ["--dest", str(folder), "-r", str(LOCK)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise SetupError("downloading %s failed:\n%s" % (LOCK, done.stdout.decode(errors="replace")[-2000:]))
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    """Take the chosen collections out of the wheel."""
    prefixes = tuple("ansible_collections/%s/%s/" % tuple(name.split(".")) for name in chosen())
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith(prefixes)]
        for name, prefix in zip(chosen(), prefixes):
            if not any(member.startswith(prefix) for member in members):
                raise SetupError("collection %s of %s is not in %s" % (name, CHOSEN, wheel.name))
        archive.extractall(folder, members)
