# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/bench: the benchmarks below tests/bench, one after the other; each writes build/bench/NAME.json."""

from __future__ import annotations

import argparse
import subprocess

from . import environments, say
from .paths import CHECKOUT

FOLDER = CHECKOUT / "tests" / "bench"
RESULTS = CHECKOUT / "build" / "bench"


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks or all; 0 when every one ended well."""
    known = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
    parser = argparse.ArgumentParser(prog="dev/bench", description=__doc__.partition(": ")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all ({', '.join(known)})")
    names = parser.parse_args(arguments).names or known
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"benchmark {unknown[0]} is unknown; there are {', '.join(known) or 'none'}")
    environment = environments.variables()
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if not _run(name, environment)]
    if failed:
        say("failed: benchmark " + ", ".join(failed))
    return 1 if failed else 0


def _run(name: str, environment: dict[str, str]) -> bool:
    """One benchmark as a program of its own; without a result file it counts as failed."""
    result = RESULTS / (name + ".json")
    result.unlink(missing_ok=True)
    done = subprocess.run(["python", str(FOLDER / (name + ".py"))], cwd=CHECKOUT, env=environment, check=False)
    return done.returncode == 0 and result.exists()
