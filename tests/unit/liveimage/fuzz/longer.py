# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzz one parser for as long as wanted: `dev/run python -m tests.unit.liveimage.fuzz.longer PARSER SECONDS [SEED]`.

With atheris installed (it is no dependency of the project) coverage leads the way, else chance does. A case that breaks
a promise, or takes long, is written into the corpus, where the tests find it.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

import dev.pytest_collection  # noqa: F401  # pylint: disable=unused-import
from tests.unit.liveimage.fuzz import mutations
from tests.unit.liveimage.fuzz.mutations import CORPUS, mutated, seeds
from tests.unit.liveimage.fuzz.targets import TARGETS

MOST = 20  # kept cases of a run: most of them show the same defect
SLOW = 5.0  # seconds of CPU for one case


def keep(parser: str, case: bytes, why: str) -> None:
    """Write a case down."""
    name = "found-" + hashlib.sha256(case).hexdigest()[:10]
    if name not in mutations.kept(parser) and len(list(CORPUS.glob("*/found-*"))) < MOST:
        mutations.keep(parser, name, case)
        print(f"{parser}/{name}: {why}", flush=True)


def run(parser: str, case: bytes) -> None:
    """One case; what goes wrong is kept."""
    began = time.process_time()
    try:
        TARGETS[parser](case)
    except (Exception, MemoryError) as error:  # noqa: BLE001 - every exception is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        keep(
            parser, case, f"{type(error).__name__} at {last.filename.rpartition('/')[2]}:{last.lineno}: {error!s:.200}"
        )
    if time.process_time() - began > SLOW:
        keep(parser, case, "slow")


def main(arguments: list[str]) -> int:
    """Fuzz until the time is over; 1 when something was found."""
    parser, ends = arguments[0], time.monotonic() + float(arguments[1])
    known, before = seeds(parser), len(mutations.kept(parser))
    chance = random.Random(int(arguments[2]) if arguments[2:] else None)
    count = 0
    try:
        import atheris
    except ImportError:
        while time.monotonic() < ends:
            run(parser, mutated(parser, chance, known))
            count += 1
    else:

        def one(data: bytes) -> None:
            run(parser, mutated(parser, random.Random(data), known) if parser == "iso" else data)

        atheris.instrument_all()
        scratch = Path(tempfile.mkdtemp(prefix=f"fuzz-{parser}-"))  # the seeds, and what atheris collects
        for name, case in mutations.kept(parser).items():
            (scratch / name).write_bytes(case)
        atheris.Setup([sys.argv[0], f"-max_total_time={arguments[1]}", "-max_len=4096", str(scratch)], one)
        atheris.Fuzz()  # ends the process
    found = len(mutations.kept(parser)) - before
    print(f"{parser}: {count} cases, {found} kept")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
