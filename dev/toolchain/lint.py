# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/lint: every linter side by side, one line each, all of them even when one fails."""

from __future__ import annotations

import argparse
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from . import debian, environments
from .linters import LINTERS, Job, Linter
from .paths import CHECKOUT

LOGS = CHECKOUT / "build" / "lint"
#: lines of a failed linter's log shown in the terminal; the rest is in the file
SHOWN = 60


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen linters; 0 when all are content."""
    parser = argparse.ArgumentParser(prog="dev/lint", description=__doc__.partition(": ")[2])
    parser.add_argument("--list", action="store_true", help="print the linters' names")
    parser.add_argument("names", nargs="*", metavar="LINTER", help="default: all")
    chosen = parser.parse_args(arguments)
    known = {linter.name: linter for linter in LINTERS}
    if chosen.list:
        print("\n".join(known))
        return 0
    unknown = [name for name in chosen.names if name not in known]
    if unknown:
        parser.error("linter %s is unknown; there are %s" % (unknown[0], ", ".join(known)))
    linters = [known[name] for name in dict.fromkeys(chosen.names)] or LINTERS
    _prepare(linters)
    return _run(linters)


def _prepare(linters: list[Linter]) -> None:
    """Make all environments first, so that the linters' times are their own."""
    debian.ensure(["base"])
    for name in dict.fromkeys(name for linter in linters for name in linter.environments):
        environments.ensure(name)
    environments.variables()


def _run(linters: list[Linter]) -> int:
    """Run side by side, print each result as it comes."""
    LOGS.mkdir(parents=True, exist_ok=True)
    start, failed = time.monotonic(), []
    with ThreadPoolExecutor(max_workers=max(2, min(4, os.cpu_count() or 2))) as pool:
        running = {pool.submit(_one, linter): linter for linter in linters}
        for future in as_completed(running):
            linter = running[future]
            good, seconds, log = future.result()
            print("%-4s %-16s %5.1f s" % ("ok" if good else "FAIL", linter.name, seconds), flush=True)
            if not good:
                failed.append(linter.name)
                _show(log, linter.telling)
    verdict = "failed: " + ", ".join(failed) if failed else "all content"
    print("lint: %d linters in %.0f s, %s" % (len(linters), time.monotonic() - start, verdict))
    return 1 if failed else 0


def _one(linter: Linter) -> tuple[bool, float, Path]:
    """One linter, its log and its time; a fault of its own counts as a finding."""
    log = LOGS / (linter.name + ".log")
    log.write_text("", encoding="utf-8")
    start = time.monotonic()
    job = Job(log)
    try:
        good = linter.run(job)
    except (OSError, ValueError, SyntaxError) as error:
        job.write("%s: %s\n" % (type(error).__name__, error))
        good = False
    return good, time.monotonic() - start, log


def _show(log: Path, telling: str) -> None:
    """The telling lines of a failed linter's log, or its end when there are none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    chosen = [line for line in lines if re.search(telling, line)] or lines
    for line in chosen[-SHOWN:]:
        print("     | " + line)
    if len(chosen[-SHOWN:]) < len(lines):
        print("     | the whole log: %s" % log.relative_to(CHECKOUT))
