# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/fuzz: property tests with random data for a given time; what fails becomes an @example in its test."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import environments
from .paths import CHECKOUT
from .test import LONG_MARKERS, test_variables

PATCHES = CHECKOUT / ".hypothesis" / "patches"
#: how long a round may take to print its findings after it was interrupted
GRACE = 120


def main(arguments: list[str] | None = None) -> int:
    """0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="dev/fuzz", description=__doc__.partition(": ")[2])
    parser.add_argument("seconds", type=int, nargs="?", default=600)
    parser.add_argument("pytest", nargs=argparse.REMAINDER, help="tests and further arguments for pytest")
    chosen = parser.parse_args(arguments)
    environments.ensure_debian(["base"])
    environment = {**test_variables("main"), "KUBENODE_HYPOTHESIS": "fuzz"}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    before = _patches()
    failed = _explore(environment, time.monotonic() + chosen.seconds, chosen.pytest)
    found = sorted(_patches() - before)
    for patch in found:
        _keep(patch)
    print(f"fuzz: {failed} tests failed, {len(found)} patches with examples")
    return 1 if failed else 0


@dataclass
class Round:
    """One run of pytest with a seed of its own."""

    process: subprocess.Popen[bytes]
    counts: Path

    def failed(self) -> int:
        """How many tests found something; an interrupted round reports it, too."""
        if not self.counts.exists():
            return int(self.process.returncode not in (0, 2, 5))  # passed, interrupted, no test chosen
        failed: int = json.loads(self.counts.read_text(encoding="ascii"))["failed"]
        return failed


def _explore(environment: dict[str, str], deadline: float, further: list[str]) -> int:
    """One round a core at a time until the deadline; the number of failed tests."""
    running: list[Round] = []
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < deadline:
            while len(running) < (os.cpu_count() or 1):
                running.append(_begin(environment, Path(folder), further))
            time.sleep(1)
            ended = [item for item in running if item.process.poll() is not None]
            failed += sum(item.failed() for item in ended)
            running = [item for item in running if item not in ended]
        for item in running:
            item.process.send_signal(signal.SIGINT)
        for item in running:
            try:
                item.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                item.process.kill()
                item.process.wait()
            failed += item.failed()
    return failed


def _begin(environment: dict[str, str], folder: Path, further: list[str]) -> Round:
    seed = random.SystemRandom().randrange(2**32)
    print(f"fuzz: a round with seed {seed}", flush=True)
    counts = folder / f"{seed}.json"
    python = environments.ENVIRONMENTS["main"].folder / "bin" / "python"
    command = [str(python), "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    command += ["-m", f"hypothesis and not ({' or '.join(LONG_MARKERS)})", *(further or ["tests/unit", "tests/lab"])]
    variables = {**environment, "KUBENODE_TEST_COUNTS": str(counts)}
    return Round(subprocess.Popen(command, env=variables, cwd=CHECKOUT, stdin=subprocess.DEVNULL), counts)


def _patches() -> set[Path]:
    return set(PATCHES.glob("*.patch"))


def _keep(patch: Path) -> None:
    """Put the examples of a patch into their tests; say where it does not fit."""
    done = subprocess.run(
        ["git", "-C", str(CHECKOUT), "apply", "--verbose", str(patch)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(done.stdout.decode(errors="replace").strip())
    if done.returncode:
        print(f"fuzz: {patch} does not apply to these files as they are; it has the examples")
