# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m dev.kubelet_api --source 1.35=FOLDER[=LABEL] …`` writes both tables, ours and the lab's."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dev.kubelet_api.changes import CHANGES, Table
from dev.kubelet_api.goflags import flags
from dev.kubelet_api.gosource import Checkout, Missing
from dev.kubelet_api.gostructs import fields
from dev.kubelet_api.render import render

ROOT = Path(__file__).resolve().parents[2]
#: file → licence; plugins and the lab import nothing from each other, so each has its own copy
WRITTEN = {
    "plugins/module_utils/_node/kubelet/tables.py": "BSD-2-Clause",
    "lab/kubelet/app/tables.py": "GPL-3.0-or-later",
}


def tables(given: dict[str, tuple[Path, str]], wanted: list[str]) -> tuple[dict[str, Table], dict[str, str]]:
    """Tables and their sources; a minor without a source comes from its neighbour by :data:`CHANGES`."""
    found: dict[str, Table] = {}
    sources = {}
    for minor, (folder, label) in given.items():
        checkout = Checkout(folder)
        found[minor] = flags(checkout), fields(checkout)
        sources[minor] = label
    for minor in wanted:
        if minor in found:
            continue
        change = CHANGES.get(minor)
        if change is None or change.base not in given:
            raise Missing("no source of %s: give --source %s=FOLDER, or name it in changes.py" % (minor, minor))
        found[minor] = change.apply(found[change.base])
        sources[minor] = "derived from %s: %s" % (change.base, change.why)
    return found, sources


def main(argv: list[str]) -> int:
    """Write the tables; exit status 1 with ``--check`` when a file would change."""
    parser = argparse.ArgumentParser(prog="python -m dev.kubelet_api", description=__doc__)
    parser.add_argument("--source", action="append", default=[], metavar="MINOR=FOLDER[=LABEL]", required=True)
    parser.add_argument("--minor", action="append", default=[], help="default: 1.34 1.35 1.36")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    given = {}
    for source in options.source:
        minor, folder, *label = source.split("=", 2)
        given[minor] = (Path(folder), label[0] if label else "sources of Kubernetes " + minor)
    try:
        found, sources = tables(given, options.minor or ["1.34", "1.35", "1.36"])
    except Missing as problem:
        parser.error(str(problem))
    stale = 0
    for name, licence in WRITTEN.items():
        text = render(found, sources, licence)
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale = 1
        print(name)
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale if options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
