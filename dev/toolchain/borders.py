# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The import borders of docs/design.md, checked on the syntax tree of every Python file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

OURS = ("ansible_collections", "kubenode", "provision")
#: top-level folders that count as ours when imported by their bare name
HOUSE = ("dev", "lab", "plugins", "provision", "tests")

UTILS = "plugins/module_utils"
COMMON = UTILS + "/_common"
IMAGE_SERVER = "plugins/plugin_utils/image_server"

#: folder or file (longest match wins) → what of ours it may import
ALLOWED = {
    "lab": ("lab",),
    "dev": ("dev",),
    "dev/toolchain/release": (
        "dev",
        COMMON + "/zip_program",  # programs are put together in one way
        "plugins/plugin_utils/rescue_run/rescue_programs",
        IMAGE_SERVER + "/pack_program",
    ),
    "dev/testbed": ("dev", "lab"),  # asks the lab's own routes, which a program would take half a second for
    "dev/demos": ("dev", "lab"),  # ask the mirror for its sums, and cut a machine off from all but its control plane
    "dev/kubelet_api": ("dev", "lab"),  # takes Go modules as the lab does
    "playbooks": (),
    "provision": ("provision", COMMON, "plugins/plugin_utils/node_plan", "plugins/plugin_utils/role_specs"),
    "plugins": (UTILS, "plugins/plugin_utils"),
    "plugins/modules": (UTILS,),
    "plugins/plugin_utils": (UTILS, "plugins/plugin_utils"),
    "plugins/doc_fragments": (),
    UTILS: (UTILS,),
    COMMON: (COMMON,),
    UTILS + "/_hetzner": (UTILS + "/_hetzner", COMMON),
    UTILS + "/_rescue": (UTILS + "/_rescue", COMMON),
    UTILS + "/_liveimage": (UTILS + "/_liveimage", COMMON),
    IMAGE_SERVER + "/daemon": (IMAGE_SERVER + "/daemon", UTILS + "/_liveimage", COMMON),  # the program
    IMAGE_SERVER + "/pack_program": (COMMON + "/zip_program",),  # runs without ansible-core, too
    UTILS + "/_node": (UTILS + "/_node", COMMON),
    "tests/unit": ("plugins", "provision", "tests", "dev", "playbooks"),
}


def findings(root: Path, names: list[str]) -> list[str]:
    """One line for each import that crosses a border."""
    result = []
    for name in names:
        if not name.endswith(".py"):
            continue
        allowed = _allowed(name)
        if allowed is None:
            continue
        tree = ast.parse((root / name).read_text(encoding="utf-8"), name)
        for line, target in imports(tree, name):
            if not any(_within(target, place) for place in allowed):
                may = ", ".join(allowed) or "nothing of ours"
                result.append(f"{name}:{line}: imports {target}; it may import {may}")
    return result


def imports(tree: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Every import of something of ours, as (line, path below the checkout without .py)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [*Path(name).parts[: -node.level], *base]
                # a relative import cannot leave the collection, so it is spelt from the checkout
                targets = [[*OURS, *base, alias.name] for alias in node.names]
            else:
                targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            path = _ours(target)
            if path:
                yield node.lineno, path


def _ours(target: list[str]) -> str | None:
    if tuple(target[:3]) == OURS:
        return "/".join(target[3:]) or None
    return "/".join(target) if target[0] in HOUSE else None


def _allowed(name: str) -> tuple[str, ...] | None:
    matches = [place for place in ALLOWED if _within(name[: -len(".py")], place)]
    return ALLOWED[max(matches, key=len)] if matches else None


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")
