# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/lock: writes requirements/*.txt from requirements/*.in; `dev/lock --upgrade` takes newer versions."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from . import environments
from .paths import REQUIREMENTS

#: lock → the oldest Python of its environment, for which it is made; it holds for all newer ones
LOCKS = {
    "main": "3.11",
    "core-2.18": "3.11",
    "core-2.20": "3.12",
    "core-2.21": "3.12",
    "docs": "3.11",
    "importer": "3.11",
    "provision": "3.11",
    "wheel": "3.11",
    "image-server": "3.11",
    "bundle": "3.11",
    "uv": "3.9",
}
#: locks of the named packages only, without what these depend on
ALONE = ("bundle", "provision")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev/lock", description=__doc__.partition(": ")[2])
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of `uv pip compile`, such as --upgrade")
    options = parser.parse_args(arguments).options
    locks = {name: _compiled(name, python, options) for name, python in LOCKS.items()}
    for name, lock in environments.split(locks).items():
        path = REQUIREMENTS / (name + ".txt")
        path.write_text(environments.written(lock), encoding="ascii")
        print("requirements/%s: %d packages" % (path.name, len(lock)))
    return 0


def _compiled(name: str, python: str, options: list[str]) -> environments.Lock:
    """What uv makes of NAME.in; versions that NAME.txt has stay, unless the options say otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "lock.txt"
        draft.write_text(environments.written(environments.whole(name)), encoding="ascii")
        words = ["pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--no-header"]
        words += ["--no-emit-index-url", "--python-version", python, *(["--no-deps"] if name in ALONE else [])]
        environments.run_uv([*words, *options, str(REQUIREMENTS / (name + ".in")), "--output-file", str(draft)])
        return environments.parsed(draft.read_text(encoding="ascii"))
