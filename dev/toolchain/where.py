# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints where a part of the cache lies, for scripts."""

from __future__ import annotations

import argparse

from . import bundle, environments
from .paths import cache
from .report import SetupError, say

SUBJECTS = {"cache": cache, "uv": environments.uv, "collections": bundle.ensure}


def main(arguments: list[str] | None = None) -> int:
    """Print one path."""
    parser = argparse.ArgumentParser(prog="dev/python where", description=__doc__)
    parser.add_argument("subject", choices=sorted(SUBJECTS))
    chosen = parser.parse_args(arguments)
    try:
        print(SUBJECTS[chosen.subject]())
    except SetupError as error:
        say("failed: %s" % error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
