# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python interpreters that really run, by version."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

from .paths import cache

Version = tuple[int, int]

_PROBE = "import sys, ssl, venv; print('%d.%d' % sys.version_info[:2])"


@functools.cache
def version_of(interpreter: Path) -> Version | None:
    """Version of an interpreter, or None when it does not run or lacks ssl or venv (pyenv's shims exit 127)."""
    try:
        answer = subprocess.run(
            [str(interpreter), "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=120,  # for hangs: a busy machine is slow
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", answer.stdout.decode().strip())
    return (int(match[1]), int(match[2])) if match and answer.returncode == 0 else None


def folders() -> list[Path]:
    """Where interpreters are looked for: the system's, PATH, pyenv's versions, uv's installations."""
    entries = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry.startswith("/")]
    found = [Path("/usr/bin"), *entries]
    pyenvs = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")]
    # the shims of a pyenv lie beside its versions
    pyenvs += [entry.parent for entry in entries if entry.name == "shims"]
    for pyenv in pyenvs:
        found += sorted((pyenv / "versions").glob("*/bin"))
    found += sorted(uv_folder().glob("*/bin"))
    # dict, so that the order stays and nothing is probed twice
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def uv_folder() -> Path:
    """Where interpreters that uv installs for us are kept."""
    return cache() / "python"


def find(minimum: Version, maximum: Version) -> Path | None:
    """The oldest running interpreter within the two versions, both included; the system's own comes first."""
    for minor in range(minimum[1], maximum[1] + 1):
        for folder in folders():
            candidate = folder / ("python3.%d" % minor)
            if candidate.exists() and version_of(candidate) == (3, minor):
                return candidate
    return None


def search_path(every_python: bool = False) -> list[str]:
    """Folders of PATH without those whose Pythons do not run; on request every real interpreter's in front."""
    real = []
    for minor in range(8, 20) if every_python else ():
        interpreter = find((3, minor), (3, minor))
        # /usr/bin keeps its place: in front it would hide the tools of an environment
        if interpreter and interpreter.parent != Path("/usr/bin"):
            real.append(str(interpreter.parent))
    entries = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    return [*dict.fromkeys([*real, *(entry for entry in entries if not _is_broken(Path(entry)))])]


def _is_broken(folder: Path) -> bool:
    """Whether a folder of PATH offers a python3.N that does not run."""
    shims = (path for path in folder.glob("python3.*") if re.fullmatch(r"python3\.[0-9]+", path.name))
    return any(version_of(shim) is None for shim in shims)
