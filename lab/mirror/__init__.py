# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's mirror: what nodes download, under the paths of the projects that publish it, and an apt repository.

Everything is made of Debian's packages, or by other parts of the lab, on first use and kept in the cache. Versions
are Debian's. containerd 1.6.20 (bookworm), 1.7.24 (trixie) and 2.1.9 (sid), the CNI plugins 1.1.1 and 1.9.1 and
runc 1.1.5 run on bookworm and trixie; runc 1.1.15 and 1.3.6 need trixie's C library. Kubernetes and crictl come from
`lab.cluster`, whose first build takes minutes. The kubelet of one more release only says its version: base installs it
where a test starts none.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from lab import cache, cluster
from lab.cache import Progress, quiet, store
from lab.cluster import CONTAINERD, CRICTL, KUBERNETES, NODE_PROGRAMS, OLDEST, PAUSE_TAGS

from . import repository, upstream
from .repository import cloud_config
from .upstream import ARCH, NODE_ARCHIVE, Part, tarball

__all__ = ["apt", "checksums", "cloud_config", "find", "packaged", "prepare", "program"]


#: the versions of our crictl
_OUR_CRICTL = ("1.33.0", "1.34.0", "1.35.0", "1.36.0")
_REAL = (*NODE_PROGRAMS, "kubectl")
#: the real Kubernetes: the release of the control plane, and the oldest whose nodes it takes
REAL = (KUBERNETES, OLDEST)
#: the release of the kubelet that nothing starts
IDLE = "1.36.4"
_IDLE = f"""\
#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
[ "$*" != --version ] || exec echo "Kubernetes v{IDLE}"
echo "this kubelet of the lab says its version and nothing else" >&2
exit 1
"""
_INDEX = "index.json"


@dataclass(frozen=True)
class _Buildable:
    """A part that exists when it is asked for."""

    name: str
    version: str
    path: str
    build: Callable[[], Path]
    #: the release of REAL that it is for
    real: str = ""


def _built_parts(*names: str, real: Collection[str]) -> list[Part]:
    """These parts, all when none is named; what is missing is built. ``real``: what is for these of REAL, too."""
    wanted = [part for part in _programs() if not names or part.name in names]
    wanted = [part for part in wanted if not part.real or part.real in real]
    return [Part(part.name, part.version, part.path, part.build()) for part in wanted]


def _find_built(path: str) -> Path | None:
    """The file at this path below the mirror's root, built if need be; None when there is no such file."""
    for part in (*_programs(), *_images()):
        if part.path == path:
            return part.build()
    return None


def _programs() -> Iterator[_Buildable]:
    yield _Buildable("kubelet", IDLE, _release_path(IDLE, "kubelet"), _idle)
    for name in _REAL:
        path = _release_path(KUBERNETES, name)
        yield _Buildable(name, KUBERNETES, path, functools.partial(_program, name), KUBERNETES)
    for name in NODE_PROGRAMS:
        yield _Buildable(name, OLDEST, _release_path(OLDEST, name), functools.partial(_oldest, name), OLDEST)
    archive = f"dl.k8s.io/release/v{KUBERNETES}/{NODE_ARCHIVE}-linux-{ARCH}.tar.gz"
    yield _Buildable(NODE_ARCHIVE, KUBERNETES, archive, _node_archive, KUBERNETES)
    yield _Buildable("containerd", CONTAINERD, upstream.containerd_path(CONTAINERD), _containerd, KUBERNETES)
    yield _Buildable("crictl", CRICTL, _crictl_path(CRICTL), _real_crictl, KUBERNETES)
    for version in _OUR_CRICTL:
        yield _Buildable("crictl", version, _crictl_path(version), functools.partial(_our_crictl, version))


def _images() -> Iterator[_Buildable]:
    for tag in PAUSE_TAGS:
        yield _Buildable("pause", tag, f"images/pause-{tag}.tar", functools.partial(_pause, tag))


def _release_path(version: str, name: str) -> str:
    return f"dl.k8s.io/release/v{version}/bin/linux/{ARCH}/{name}"


def _crictl_path(version: str) -> str:
    return f"github.com/kubernetes-sigs/cri-tools/releases/download/v{version}/crictl-v{version}-linux-{ARCH}.tar.gz"


@functools.cache
def _idle() -> Path:
    return store("kubelet", _IDLE.encode())


def _program(name: str) -> Path:
    return cluster.ensure().kubernetes / name


def _oldest(name: str) -> Path:
    return cluster.ensure_node(OLDEST) / name


def _node_archive() -> Path:
    members = {f"kubernetes/node/bin/{name}": _program(name) for name in _REAL}
    return _packed(_program(f"{NODE_ARCHIVE}-linux-{ARCH}.tar.gz"), members)


def _containerd() -> Path:
    folder = cluster.ensure_containerd()
    members = {f"bin/{name}": folder / name for name in cluster.CONTAINERD_PROGRAMS}
    return _packed(folder / Path(upstream.containerd_path(CONTAINERD)).name, members)


def _packed(file: Path, members: Mapping[str, Path]) -> Path:
    """A tarball of built programs, kept beside them, and as long."""
    with cache.locked("mirror"):
        if not file.exists():
            partial = file.with_suffix(".part")
            partial.write_bytes(tarball({name: program.read_bytes() for name, program in members.items()}))
            partial.rename(file)
    return file


def _real_crictl() -> Path:
    program = cluster.ensure_crictl()
    return _packed(program.parent / Path(_crictl_path(CRICTL)).name, {"crictl": program})


def _our_crictl(version: str) -> Path:
    program = cluster.ensure_tools().crictl(version)
    return store(f"crictl-v{version}-linux-{ARCH}.tar.gz", tarball({"crictl": program}))


def _pause(tag: str) -> Path:
    return store(f"pause-{tag}.tar", cluster.ensure_tools().pause(tag))


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
    for part in [*packaged(), *_built_parts(real=real)] if not names else _parts(names, real):
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
    return mine if {part.name for part in mine} == set(names) else [*mine, *_built_parts(*names, real=real)]


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
        return store("checksums.yml", yaml.safe_dump(checksums(real=REAL)).encode())
    if first == "apt":
        return _in_apt(rest)
    found = _find_built(path)
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
