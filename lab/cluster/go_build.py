# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds programs with Go: of published modules, checked against go.sum, or of Debian's sources without a network."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import cache
from lab.cache import Progress
from lab.errors import ClusterError, Unavailable

# program → the Debian package that brings it
_PACKAGES = {"go": "golang-go"}
#: the programs that building our own ones takes
FOR_TOOLS = tuple(_PACKAGES)
#: what Kubernetes names the version of its own modules in its go.mod, where it replaces them by folders of its tree
_OWN = "v0.0.0"
#: how go words a connection that broke; it asks a proxy only once, and a build asks for hundreds of modules
_BROKEN = re.compile("connection reset by peer|i/o timeout|TLS handshake timeout|unexpected EOF|stream error")
_TRIES = 5


def require_programs(names: Sequence[str]) -> None:
    """Raise one clear error naming every missing package."""
    missing = {_PACKAGES[program] for program in names if not shutil.which(program)}
    if missing:
        raise ClusterError(
            "building the lab's crictl and pause needs Debian packages; "
            f"run: apt-get install {' '.join(sorted(missing))}"
        )


def with_modules(
    module: Path, *arguments: str, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of go in the folder of a module, politely. Where modules come from is the user's own setting.

    What a broken connection ended is run again: go keeps what it has fetched and built.
    """
    environment = {
        **os.environ,
        "GOPATH": str(module.parent / "go"),
        "GOMODCACHE": str(module.parent / "go/pkg/mod"),
        "GOCACHE": str(module.parent / "cache"),
        "GO111MODULE": "on",
        "GOWORK": "off",
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod -modcacherw".strip(),
        "CGO_ENABLED": "0",
        "LC_ALL": "C.UTF-8",
        **(settings or {}),
    }
    for _try in range(_TRIES):
        done = subprocess.run(
            ["nice", "-n", "10", "go", *arguments], cwd=module, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not (done.returncode and _BROKEN.search(done.stdout + done.stderr)):
            break
    return done


def go_build(module: Path, what: str, *arguments: str, settings: Mapping[str, str] | None = None) -> None:
    """Build ``what`` in the folder of a module; its last words are in the error."""
    done = with_modules(module, "build", "-trimpath", *arguments, settings=settings)
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-15:])
        raise ClusterError(f"go build failed (status {done.returncode}) for {what}:\n{tail}")


def discard(work: Path) -> None:
    """Remove a folder in which Go has worked: it makes some of its folders read-only."""
    subprocess.run(["chmod", "-R", "u+w", str(work)], check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(work)], check=True)


def once(folder: Path, build: Callable[[Path], None], progress: Progress, programs: Sequence[str] = ()) -> None:
    """Build ``folder`` (NAME-DIGEST) by ``programs`` of the host, unless it is there; reports how long that took."""

    def timed(partial: Path) -> None:
        require_programs(programs)
        started = time.monotonic()
        build(partial)
        progress(f"{folder.name}: built in {time.monotonic() - started:.0f} s")

    # a lock for each name: who needs our own small programs does not wait for a quarter of an hour of Kubernetes
    cache.once(folder, timed, folder.name.rpartition("-")[0], marker="complete", progress=progress)


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
        """NAME-DIGEST, as `once` wants it."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[: cache.DIGITS]}"


def build_recipe(
    recipe: Recipe, folder: Path, progress: Progress, settings: Mapping[str, str] | None = None, linking: str = ""
) -> None:
    """Fill ``folder`` with the programs; `Unavailable` without Go or the modules. ``linking``: flags of the linker."""
    what = f"{recipe.module} {recipe.version}"
    work = folder / "work"
    module = work / "module"
    progress(f"{recipe.name}: fetching {what} and what it requires")
    prepare_module(recipe, module)
    for number, (name, package) in enumerate(recipe.programs.items(), 1):
        progress(f"{recipe.name}: building {name} ({number} of {len(recipe.programs)})")
        stamps = " ".join(f"-X {variable}={text}" for variable, text in recipe.stamps.items())
        options = ("-tags", ",".join(recipe.tags), "-ldflags", f"-s -w {stamps} {linking}".strip())
        go_build(module, f"{name} of {what}", *options, "-o", str(folder / name), package, settings=settings)
    discard(work)


def prepare_module(recipe: Recipe, module: Path) -> None:
    """Make the new folder ``module`` a Go module that requires only the recipe's."""
    if not shutil.which("go"):
        raise Unavailable(f"Go, which {recipe.module} is built with, is not installed; see https://go.dev/dl/")
    module.mkdir(parents=True)
    source = _fetched(recipe, module)
    (module / "go.mod").write_text(_go_mod(recipe, _read_go_mod(module, source / "go.mod")))
    shutil.copy(source / "go.sum", module / "go.sum")


def _fetched(recipe: Recipe, module: Path) -> Path:
    """The folder of the module's files, which are those of the recipe."""
    what = f"{recipe.module}@{recipe.version}"
    done = with_modules(module, "mod", "download", "-json", what)
    facts = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    if done.returncode:
        reason = " ".join((facts.get("Error") or done.stderr or "it says nothing").split())
        raise Unavailable(f"{what} cannot be had as a Go module ({reason[-300:]})")
    if facts["Sum"] != recipe.sum:
        raise ClusterError(f"{what} has the sum {facts['Sum']}, and not {recipe.sum} as the lab has noted it")
    return Path(facts["Dir"])


def _read_go_mod(module: Path, file: Path) -> dict[str, Any]:
    done = with_modules(module, "mod", "edit", "-json", str(file))
    if done.returncode:
        raise ClusterError(f"go cannot read {file.name} of {file.parent.name}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _go_mod(recipe: Recipe, theirs: Mapping[str, Any]) -> str:
    """The go.mod of a module that requires theirs as it was released: a replacement counts in its own module only."""
    own = [one["Path"] for one in theirs["Require"] if one["Version"] == _OWN]
    lines = ["module lab", f"go {theirs['Go']}"]
    lines += [f"godebug {one['Key']}={one['Value']}" for one in theirs.get("Godebug") or ()]
    lines.append(f"require {recipe.module} {recipe.version}")
    lines += [f"replace {path} => {path} {recipe.own}" for path in own]
    return "\n".join(lines) + "\n"
