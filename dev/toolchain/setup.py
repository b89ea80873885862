# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/setup: provide what commands of this checkout need."""

from __future__ import annotations

import argparse

from . import debian, environments
from .paths import cache
from .report import say
from .trees import linked_tree


def main(arguments: list[str] | None = None) -> int:
    """Provide Debian packages and environments; idempotent."""
    parser = argparse.ArgumentParser(prog="dev/setup", description=__doc__.partition(": ")[2])
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help="default: main")
    parser.add_argument("--debian", default="base", metavar="GROUPS", help="groups of dev/debian-packages.txt")
    chosen = parser.parse_args(arguments)
    names = chosen.environments or ["main"]
    unknown = [name for name in names if name not in environments.ENVIRONMENTS]
    if unknown:
        parser.error("environment %s is unknown; there are %s" % (unknown[0], ", ".join(environments.ENVIRONMENTS)))
    debian.ensure([group for group in chosen.debian.split(",") if group])
    for name in names:
        environments.ensure(name)
    if "main" in names:
        environments.collections()
        linked_tree()
    say("%s ready in %s" % (", ".join(names), cache()))
    return 0
