# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment variables under which commands of this checkout run."""

from __future__ import annotations

import os
from pathlib import Path

from . import environments, pythons
from .paths import CHECKOUT, cache
from .trees import linked_tree

#: what of a user's shell must not reach our runs, by the beginnings of the names
DROPPED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "ANSIBLE_")


def variables(name: str = "main", collections: list[Path] | None = None, every_python: bool = False) -> dict[str, str]:
    """A whole process environment for commands of the named environment.

    With `every_python` all interpreters of this machine are on PATH, for ansible-test to check old syntax with.
    """
    folder = environments.ensure(name)
    trees = collections if collections is not None else [linked_tree(), environments.collections()]
    result = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
    result["PATH"] = os.pathsep.join([str(folder / "bin"), *pythons.search_path(every_python)])
    result["VIRTUAL_ENV"] = str(folder)
    result["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join(str(tree) for tree in trees)
    # whatever the user's shell says of compiled files: without them each of the many processes compiles all it imports
    result.pop("PYTHONDONTWRITEBYTECODE", None)
    result["PYTHONPYCACHEPREFIX"] = str(cache() / "pyc")
    # the lab is run as `python -m lab`, from wherever the user is
    result["PYTHONPATH"] = str(CHECKOUT)
    if not result.get("LC_ALL", result.get("LANG", "")).upper().replace("-", "").endswith("UTF8"):
        # Ansible refuses to run in a locale without UTF-8
        result["LC_ALL"] = "C.UTF-8"
    return result
