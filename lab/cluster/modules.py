# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds programs of published Go modules with the ordinary client, which checks every module against go.sum."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import go, kept
from .errors import ClusterError, Unavailable

#: what Kubernetes names the version of its own modules in its go.mod, where it replaces them by folders of its tree
_OWN = "v0.0.0"


@dataclass(frozen=True)
class Recipe:
    """Programs of one module. Its digest names the folder of the result."""

    name: str
    module: str
    version: str
    #: of the module, as a go.sum states it
    sum: str
    #: program → its package
    programs: Mapping[str, str]
    #: variable → text that the linker puts there
    stamps: Mapping[str, str] = field(default_factory=dict)
    #: release of the modules that the go.mod requires as v0.0.0
    own: str = ""
    tags: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """NAME-DIGEST, as `kept.once` wants it."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[: kept.DIGITS]}"


def build(recipe: Recipe, folder: Path, progress: Callable[[str], None]) -> None:
    """Fill ``folder`` with the programs; `Unavailable` where Go or the modules are not to be had."""
    what = f"{recipe.module} {recipe.version}"
    work = folder / "work"
    module = work / "module"
    progress(f"{recipe.name}: fetching {what} and what it requires")
    prepare(recipe, module)
    for number, (name, package) in enumerate(recipe.programs.items(), 1):
        progress(f"{recipe.name}: building {name} ({number} of {len(recipe.programs)})")
        stamps = " ".join(f"-X {variable}={text}" for variable, text in recipe.stamps.items())
        options = ("-trimpath", "-tags", ",".join(recipe.tags), "-ldflags", f"-s -w {stamps}")
        done = go.with_modules(module, "build", *options, "-o", str(folder / name), package)
        if done.returncode:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise ClusterError(f"go build failed (status {done.returncode}) for {name} of {what}:\n{tail}")
    go.discard(work)


def prepare(recipe: Recipe, module: Path) -> None:
    """Make the new folder ``module`` a module that has the recipe's as its only wish."""
    if not shutil.which("go"):
        raise Unavailable(f"Go, which {recipe.module} is built with, is not installed; see https://go.dev/dl/")
    module.mkdir(parents=True)
    source = _fetched(recipe, module)
    (module / "go.mod").write_text(_module(recipe, _read(module, source / "go.mod")))
    shutil.copy(source / "go.sum", module / "go.sum")


def _fetched(recipe: Recipe, module: Path) -> Path:
    """The folder of the module's files, which are those of the recipe."""
    what = f"{recipe.module}@{recipe.version}"
    done = go.with_modules(module, "mod", "download", "-json", what)
    told = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    if done.returncode:
        reason = " ".join((told.get("Error") or done.stderr or "it says nothing").split())
        raise Unavailable(f"{what} cannot be had as a Go module ({reason[-300:]})")
    if told["Sum"] != recipe.sum:
        raise ClusterError(f"{what} has the sum {told['Sum']}, and not {recipe.sum} as the lab has noted it")
    return Path(told["Dir"])


def _read(module: Path, file: Path) -> dict[str, Any]:
    done = go.with_modules(module, "mod", "edit", "-json", str(file))
    if done.returncode:
        raise ClusterError(f"go cannot read {file.name} of {file.parent.name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _module(recipe: Recipe, theirs: Mapping[str, Any]) -> str:
    """The go.mod of a module that requires theirs as it was released: a replacement counts in its own module only."""
    own = [one["Path"] for one in theirs["Require"] if one["Version"] == _OWN]
    lines = ["module lab", f"go {theirs['Go']}"]
    lines += [f"godebug {one['Key']}={one['Value']}" for one in theirs.get("Godebug") or ()]
    lines.append(f"require {recipe.module} {recipe.version}")
    lines += [f"replace {path} => {path} {recipe.own}" for path in own]
    return "\n".join(lines) + "\n"
