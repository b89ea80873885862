# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the mirror holds: made on first use, kept in the cache, found by path."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import tarfile
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import yaml

from lab import cache, cluster
from lab.cache import Progress, quiet, store

from . import built, repository, upstream
from .upstream import ARCH, NODE_ARCHIVE, Part

_INDEX = "index.json"


def packaged() -> list[Part]:
    """containerd, runc and the CNI plugins of Debian's suites, repacked."""
    total = hashlib.sha256()
    for module in ("../apt.py", "upstream.py"):
        total.update((Path(__file__).parent / module).read_bytes())
    folder = _ensure("upstream", total.hexdigest()[:16], _build_packaged)
    rows = json.loads((folder / _INDEX).read_text())
    return [Part(row["name"], row["version"], row["path"], folder / row["path"]) for row in rows]


def _build_packaged(folder: Path) -> None:
    rows = [{"name": part.name, "version": part.version, "path": part.path} for part in upstream.build(folder)]
    (folder / _INDEX).write_text(json.dumps(rows, indent=1))


def apt(suite: str) -> Path:
    """The folder of a suite's flat apt repository."""
    return _ensure(f"repository-{suite}", repository.digest(suite), lambda folder: repository.build(suite, folder))


def prepare(progress: Progress = quiet) -> None:
    """Make what most nodes need: the packaged parts, crictl and pause, both suites' images and repositories."""
    builds: dict[str, Callable[[], object]] = {"container programs": packaged}
    for suite in repository.IMAGES:
        builds[suite] = partial(apt, suite)
    builds["crictl and pause"] = cluster.ensure_tools
    for name, build in builds.items():
        began = time.monotonic()
        build()
        if time.monotonic() - began > 1:
            progress(f"mirror: {name} made in {time.monotonic() - began:.0f} s")


def checksums(*names: str, real: Collection[str] = ()) -> dict[str, dict[str, dict[str, str]]]:
    """``{name: {version: {amd64: digest}}}`` of these parts, of all when none is named; they are built for it.

    ``real``: releases of the real Kubernetes (`REAL`) to list as well; a first build takes a quarter of an hour.
    """
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in [*packaged(), *built.parts(real=real)] if not names else _parts(names, real):
        if not names or part.name in names:
            found.setdefault(part.name, {})[part.version] = {
                ARCH: _sum(part.file, "sha512" if part.name == NODE_ARCHIVE else "sha256")
            }
    return found


@functools.cache
def _sum(path: Path, algorithm: str) -> str:
    """The digest of a file of the cache, which never changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _parts(names: tuple[str, ...], real: Collection[str]) -> list[Part]:
    mine = [part for part in packaged() if part.name in names]
    return mine if {part.name for part in mine} == set(names) else [*mine, *built.parts(*names, real=real)]


def program(part: str, version: str, name: str, folder: Path) -> Path:
    """One program out of a tarball of the mirror, such as (containerd, 2.1.9, containerd), put into ``folder``."""
    (found,) = (item for item in packaged() if (item.name, item.version) == (part, version))
    target = folder / name
    with tarfile.open(found.file) as tar:
        (member,) = (item for item in tar.getmembers() if Path(item.name).name == name)
        content = tar.extractfile(member)
        assert content is not None
        with content, target.open("wb") as sink:
            shutil.copyfileobj(content, sink)
    target.chmod(0o755)
    return target


def find(path: str) -> Path | None:
    """The file at this path below the mirror's root, built first if need be; None when there is no such file."""
    first, _slash, rest = path.partition("/")
    if path == "checksums.yml":
        return store("checksums.yml", yaml.safe_dump(checksums(real=built.REAL)).encode())
    if first == "apt":
        return _in_apt(rest)
    found = built.find(path)
    if found is None and first == "github.com":
        found = next((part.file for part in packaged() if part.path == path), None)
    return found


def _in_apt(path: str) -> Path | None:
    if path == "key.asc":
        with cache.locked("mirror"):
            return repository.public_key()
    suite, _slash, name = path.partition("/")
    if suite not in repository.IMAGES:
        return None
    folder = apt(suite)
    file = folder / name.removeprefix("./")
    return file if file.parent == folder and file.is_file() else None


def _ensure(name: str, digest: str, build: Callable[[Path], None]) -> Path:
    return cache.once(cache.root() / "mirror" / f"{name}-{digest}", build, "mirror")
