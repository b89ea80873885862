# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m dev.kubelet_api`` writes the tables of a kubelet's flags and fields from Kubernetes' Go modules.

The program in Go beside it asks the kubelet's own packages; they are compiled for it, some minutes a release.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: flag (without dashes) → ``current`` or ``deprecated``; fields of the configuration by their JSON names, nested, where
#: ``[T]`` is a list, ``{"*": T}`` a map with any keys and ``{name: T}`` a struct
Table = tuple[dict[str, str], dict[str, Any]]


def render(tables: Mapping[str, Table], sources: Mapping[str, str]) -> str:
    """The tables as JSON; ``sources`` says of each minor where its table comes from.

    What is ``all`` every minor knows, the rest stands in ``of`` by minor; `kubelet_config.py` puts the two together.
    """
    data: dict[str, Any] = {"sources": sources}
    for name, place in (("flags", 0), ("fields", 1)):
        all_of = {minor: tables[minor][place] for minor in tables}
        common = {
            key: value
            for key, value in next(iter(all_of.values())).items()
            if all(key in known and known[key] == value for known in all_of.values())
        }
        own = {
            minor: {key: value for key, value in known.items() if key not in common} for minor, known in all_of.items()
        }
        data[name] = {"all": common, "of": own}
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(__file__).with_suffix(".go")
WRITTEN = ROOT / "plugins/plugin_utils/node_plan/kubelet_tables.json"
#: release → the sum of its module, in https://sum.golang.org
RELEASES = {
    "1.34.4": "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=",
    "1.35.4": "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM=",
    "1.36.3": "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=",
    "1.37.2": "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE=",
}


def released(version: str, digest: str, folder: Path) -> Table:
    """The tables of a release; LookupError when they cannot be made."""
    # what the lab needs is not in every environment in which the tables are tested
    from lab.cluster import programs
    from lab.cluster.go_build import prepare_module, with_modules
    from lab.errors import ClusterError

    module = folder / version
    try:
        prepare_module(programs.kubernetes_recipe(version, digest), module)
    except ClusterError as error:
        raise LookupError(str(error)) from error
    shutil.copy(PROGRAM, module / "main.go")
    done = with_modules(module, "run", ".")
    if done.returncode:
        raise LookupError(f"go run failed for Kubernetes {version}: {done.stderr[-1000:]}")
    found = json.loads(done.stdout)
    return found["flags"], found["fields"]


def main(argv: list[str]) -> int:
    """Write the tables; exit status 1 with ``--check`` when the file would change."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.kubelet_api", description="write the tables from Kubernetes' Go modules"
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    found: dict[str, Table] = {}
    said = {}
    with tempfile.TemporaryDirectory(prefix="kubelet-api-") as folder:
        for version, digest in RELEASES.items():
            minor = version.rpartition(".")[0]
            try:
                found[minor] = released(version, digest, Path(folder))
            except LookupError as problem:
                parser.error(str(problem))
            said[minor] = f"k8s.io/kubernetes v{version} and k8s.io/kubelet v0{version[1:]}"
    text = render(found, said)
    if WRITTEN.is_file() and WRITTEN.read_text(encoding="utf-8") == text:
        return 0
    print(WRITTEN.relative_to(ROOT))
    if options.check:
        return 1
    WRITTEN.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
