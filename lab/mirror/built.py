# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror's parts that other parts of the lab build: kubelets, crictl, kubectl and the images of pods.

The programs of Kubernetes and crictl come from `lab.cluster`, whose first build takes minutes. The kubelet of one more
release only says its version: base installs it where a test starts none. Nothing is built before it is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import cache, cluster
from lab.cache import store
from lab.cluster import KUBERNETES, NODE_PROGRAMS, OLDEST, PAUSE_TAGS

from .upstream import ARCH, NODE_ARCHIVE, Part, tarball

CRICTL = ("1.33.0", "1.34.0", "1.35.0", "1.36.0")
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


@dataclass(frozen=True)
class _Buildable:
    """A part that exists when it is asked for."""

    name: str
    version: str
    path: str
    build: Callable[[], Path]


def parts(*names: str, real: Collection[str]) -> list[Part]:
    """These parts, all when none is named; what is missing is built. ``real``: these of REAL, too."""
    wanted = [part for part in _programs() if not names or part.name in names]
    wanted = [part for part in wanted if part.version not in REAL or part.version in real]
    return [Part(part.name, part.version, part.path, part.build()) for part in wanted]


def find(path: str) -> Path | None:
    """The file at this path below the mirror's root, built if need be; None when there is no such file."""
    for part in (*_programs(), *_images()):
        if part.path == path:
            return part.build()
    return None


def _programs() -> Iterator[_Buildable]:
    yield _Buildable("kubelet", IDLE, _release(IDLE, "kubelet"), _idle)
    for name in _REAL:
        yield _Buildable(name, KUBERNETES, _release(KUBERNETES, name), functools.partial(_program, name))
    for name in NODE_PROGRAMS:
        yield _Buildable(name, OLDEST, _release(OLDEST, name), functools.partial(_oldest, name))
    archive = f"dl.k8s.io/release/v{KUBERNETES}/{NODE_ARCHIVE}-linux-{ARCH}.tar.gz"
    yield _Buildable(NODE_ARCHIVE, KUBERNETES, archive, _node_archive)
    for version in CRICTL:
        path = (
            f"github.com/kubernetes-sigs/cri-tools/releases/download/v{version}/crictl-v{version}-linux-{ARCH}.tar.gz"
        )
        yield _Buildable("crictl", version, path, functools.partial(_crictl, version))


def _images() -> Iterator[_Buildable]:
    for tag in PAUSE_TAGS:
        yield _Buildable("pause", tag, f"images/pause-{tag}.tar", functools.partial(_pause, tag))


def _release(version: str, name: str) -> str:
    return f"dl.k8s.io/release/v{version}/bin/linux/{ARCH}/{name}"


@functools.cache
def _idle() -> Path:
    return store("kubelet", _IDLE.encode())


def _program(name: str) -> Path:
    return cluster.ensure().kubernetes / name


def _oldest(name: str) -> Path:
    return cluster.ensure_node(OLDEST) / name


def _node_archive() -> Path:
    """Kept beside the programs, and as long."""
    file = _program(f"{NODE_ARCHIVE}-linux-{ARCH}.tar.gz")
    with cache.locked("mirror"):
        if not file.exists():
            partial = file.with_suffix(".part")
            partial.write_bytes(tarball({f"kubernetes/node/bin/{name}": _program(name).read_bytes() for name in _REAL}))
            partial.rename(file)
    return file


def _crictl(version: str) -> Path:
    program = cluster.ensure_tools().crictl(version)
    return store(f"crictl-v{version}-linux-{ARCH}.tar.gz", tarball({"crictl": program}))


def _pause(tag: str) -> Path:
    return store(f"pause-{tag}.tar", cluster.ensure_tools().pause(tag))
