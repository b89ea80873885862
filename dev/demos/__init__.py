# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of an operator, shown on the lab; what they print, and how all of them run."""

import argparse
from collections.abc import Callable

from dev.testbed import Testbed


def say(line: str) -> None:
    """One line of the demo's own, apart from what the tools print."""
    print(f"demo: {line}", flush=True)


def show(text: str) -> None:
    """What a tool said, indented."""
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


def parser(name: str, doc: str | None, *, profile: bool = True) -> argparse.ArgumentParser:
    """The options of a demo: --keep, and --profile where its delays can be chosen.

    ``doc``: its first line says what the demo shows.
    """
    made = argparse.ArgumentParser(prog=f"dev/demo {name}", description=(doc or "").partition("\n")[0])
    if profile:
        made.add_argument("--profile", default="instant", choices=("instant", "hetzner"), help="the platform's delays")
    made.add_argument("--keep", action="store_true", help="leave the lab up to look around in")
    return made


def twice(testbed: Testbed, proof: Callable[[], bool]) -> int:
    """Provision the machines, show the proof, and provision them again; the exit code, 0 when nothing changed then."""
    if code := testbed.provision(say=say):
        say(f"the run failed; its logs are in {testbed.folder / 'kubenode' / 'logs'}")
        return code
    return 0 if proof() and testbed.unchanged_again(say) else 1


def done(testbed: Testbed, code: int) -> int:
    """The same exit code; a good end is said."""
    if not code:
        say(f"done; the report of the first run: {testbed.report}")
    return code
