# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of the control plane, of a node, of test pods, and Ignition: which releases, how built, where they are.

The digest of a recipe names the folder of its result: a change of one costs every user a quarter of an hour.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.apt import Archive
from lab.cache import Progress, quiet
from lab.errors import ClusterError, Unavailable
from lab.images.recipe import SUITE

from . import go_build, tools
from .go_build import FOR_TOOLS, Recipe, build_recipe, discard
from .tools import oci_archive

KUBERNETES = "1.37.2"
#: the oldest release whose nodes may join it, and of which only the programs of a node are built
OLDEST = "1.34.4"
#: release → the sum of its module, in https://sum.golang.org
_SUMS = {
    KUBERNETES: "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE=",
    OLDEST: "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=",
}
_KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm", "kubectl")
NODE_PROGRAMS = ("kubelet", "kubeadm")
_STAMPS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
ETCD = Recipe(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",
    version="v3.6.16",
    sum="h1:sLkpvz3RFtiNd/yPrZBKz5kT+XO1ZJkhmuUJeqc7OmA=",
    programs={"etcd": "go.etcd.io/etcd/server/v3"},
)

#: the newest containerd, whose configuration has schema 4; Debian has older ones
CONTAINERD = "2.4.2"
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
_CONTAINERD_MODULE = "github.com/containerd/containerd/v2"
CONTAINERD_RECIPE = Recipe(
    name="containerd",
    module=_CONTAINERD_MODULE,
    version=f"v{CONTAINERD}",
    sum="h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw=",
    programs={name: f"{_CONTAINERD_MODULE}/cmd/{name}" for name in CONTAINERD_PROGRAMS},
    stamps={f"{_CONTAINERD_MODULE}/version.Version": f"v{CONTAINERD}"},
    tags=("urfave_cli_no_docs", "osusergo", "netgo", "static_build", "no_btrfs"),  # as in its own static build
)

#: the newest crictl, for nodes whose kubelet starts; the others have ours, which takes no modules to build
CRICTL = "1.37.0"
_CRICTL_MODULE = "sigs.k8s.io/cri-tools"
CRICTL_RECIPE = Recipe(
    name="crictl",
    module=_CRICTL_MODULE,
    version=f"v{CRICTL}",
    sum="h1:BmTImEoTX3KPXCLwmIU9mfCC8umUqF4R8WibY9eVU9Y=",
    programs={"crictl": f"{_CRICTL_MODULE}/cmd/crictl"},
    stamps={f"{_CRICTL_MODULE}/pkg/version.Version": f"v{CRICTL}"},
)


def kubernetes_recipe(
    version: str, digest: str, name: str = "kubernetes", programs: Sequence[str] = _KUBERNETES_PROGRAMS
) -> Recipe:
    """Programs of a release whose module has this sum."""
    major, minor, patch = version.split(".")
    # without them the programs call themselves v0.0.0
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return Recipe(
        name=name,
        module="k8s.io/kubernetes",
        version=f"v{version}",
        sum=digest,
        programs={program: f"k8s.io/kubernetes/cmd/{program}" for program in programs},
        stamps={f"{place}.{key}": text for place in _STAMPS for key, text in values.items()},
        own=f"v0.{minor}.{patch}",
        tags=("selinux", "notest", "grpcnotrace"),  # as in its own build
    )


KUBERNETES_RECIPE = kubernetes_recipe(KUBERNETES, _SUMS[KUBERNETES])
#: with a name of its own: results of one name take each other's place in the cache
OLDEST_RECIPE = kubernetes_recipe(OLDEST, _SUMS[OLDEST], "kubernetes-oldest", NODE_PROGRAMS)


__all__ = [
    "CONTAINERD", "CONTAINERD_PROGRAMS", "CRICTL", "KUBERNETES", "NODE_PROGRAMS", "OLDEST", "PAUSE_TAGS", "Programs",
    "Tools", "ensure", "ensure_containerd", "ensure_crictl", "ensure_node", "ensure_tools",
]  # fmt: skip

PAUSE_TAGS = ("3.10.1", "3.10.2")
_PAUSE = "registry.k8s.io/pause"
_VERSION = b"@KUBENODE-CRICTL-VERSION@--------"  # as in go/crictl/main.go
_SOURCES = Path(__file__).parent / "go"
_TOOLS = Path(__file__).parent / "tools.py"


@dataclass(frozen=True)
class Tools:
    """Our own programs, in Go and static."""

    tools: Path  # their folder

    def crictl(self, version: str) -> bytes:
        """Our crictl (static), which calls itself ``version`` (such as 1.36.0, without v)."""
        text = f"v{version}".encode()
        if len(text) > len(_VERSION):
            raise ValueError(f"version {version!r} is longer than {len(_VERSION) - 1} bytes")
        program = (self.tools / "crictl").read_bytes()
        if program.count(_VERSION) != 1:
            raise ClusterError("the built crictl does not have its version mark exactly once; see go/crictl/main.go")
        return program.replace(_VERSION, text.ljust(len(_VERSION), b"\0"))

    def pause(self, tag: str = PAUSE_TAGS[-1], name: str = _PAUSE) -> bytes:
        """An OCI archive of the image ``name:tag``: it waits; as a pod's image it takes "say TEXT…" and "exit CODE"."""
        return oci_archive((self.tools / "pause").read_bytes(), "pause", f"{name}:{tag}")


@dataclass(frozen=True)
class Programs(Tools):
    """Built programs, all static."""

    kubernetes: Path  # the folder of the programs of Kubernetes
    etcd: Path

    @property
    def kubectl(self) -> Path:
        return self.kubernetes / "kubectl"

    @property
    def kubeadm(self) -> Path:
        return self.kubernetes / "kubeadm"

    @property
    def kubelet(self) -> Path:
        return self.kubernetes / "kubelet"


def ensure(progress: Progress = quiet) -> Programs:
    """The programs, built when they are missing: a quarter of an hour on two cores, once, one builder at a time."""
    etcd = _built(ETCD, progress) / "etcd"
    return Programs(ensure_tools(progress).tools, _built(KUBERNETES_RECIPE, progress), etcd)


def ensure_node(version: str, progress: Progress = quiet) -> Path:
    """The folder of a release's NODE_PROGRAMS, built when missing; there are KUBERNETES and OLDEST (five minutes)."""
    recipes = {KUBERNETES: KUBERNETES_RECIPE, OLDEST: OLDEST_RECIPE}
    if version not in recipes:
        raise ValueError(f"the lab builds no kubelet {version}, only {', '.join(recipes)}")
    return _built(recipes[version], progress)


def ensure_containerd(progress: Progress = quiet) -> Path:
    """The folder of containerd, its shim and ctr, built when they are missing: three minutes."""
    return _built(CONTAINERD_RECIPE, progress)


def ensure_crictl(progress: Progress = quiet) -> Path:
    """The real crictl, built when it is missing: two minutes."""
    return _built(CRICTL_RECIPE, progress) / "crictl"


def ensure_tools(progress: Progress = quiet) -> Tools:
    """Our own programs alone, built when they are missing: a minute."""
    own = cache.root() / f"kubernetes-tools-{_digest(_TOOLS, *sorted(_SOURCES.rglob('*.go')))}"
    go_build.once(own, lambda folder: tools.build(_SOURCES, folder, progress), progress, FOR_TOOLS)
    return Tools(own)


def _built(recipe: Recipe, progress: Progress) -> Path:
    """The folder of the recipe's result. A run finds out only once that it cannot be built."""
    folder = cache.root() / recipe.folder
    if reason := _missing.get(folder.name):
        raise Unavailable(reason)
    try:
        go_build.once(folder, lambda partial: build_recipe(recipe, partial, progress), progress, ())
    except Unavailable as error:
        _missing[folder.name] = str(error)
        raise
    return folder


_missing: dict[str, str] = {}


def _digest(*files: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.parent.name}/{file.name}\0".encode())
        total.update(file.read_bytes())
    return total.hexdigest()[: cache.DIGITS]


@dataclass(frozen=True)
class _StaticRecipe(Recipe):
    """A program that is linked with a C library, statically: it runs on any release of Debian."""

    #: a Debian package with headers and archive
    library: str = ""
    linking: str = '-linkmode external -extldflags "-static"'


_IGNITION_PACKAGE = "github.com/coreos/ignition/v2/internal"
#: the real Ignition, which writes user data as CoreOS's initramfs does: Fedora CoreOS itself, RHCOS and Flatcar are
#: published as images only, which no package registry carries
IGNITION = _StaticRecipe(
    name="ignition",
    module="github.com/coreos/ignition/v2",
    version="v2.24.0",
    sum="h1:TVcsSWiYvhXihD8Mss3CTRuKaNZM2OIfpoKiudIhrKo=",
    programs={"ignition": _IGNITION_PACKAGE},
    stamps={
        f"{_IGNITION_PACKAGE}/version.Raw": "v2.24.0",
        # as distributions without SELinux build it, and with Debian's file of keys
        f"{_IGNITION_PACKAGE}/distro.selinuxRelabel": "false",
        f"{_IGNITION_PACKAGE}/distro.writeAuthorizedKeysFragment": "false",
    },
    library="libblkid-dev",
)


def ensure_ignition(progress: Progress = quiet) -> Path:
    """Ignition, built when it is missing: five minutes. `Unavailable` without a C compiler, Go or the modules."""
    folder = cache.root() / IGNITION.folder
    go_build.once(folder, lambda partial: _build_ignition(partial, progress), progress)
    return folder / "ignition"


def _build_ignition(folder: Path, progress: Progress) -> None:
    if not shutil.which("gcc"):
        raise Unavailable("Ignition needs a C compiler to be built; run: apt-get install gcc libc6-dev")
    debs, tree = folder / "debs", folder / "library"
    debs.mkdir()
    with cache.locked("mirror"):
        found = Archive(SUITE).download((IGNITION.library,), debs)
    for deb in found:
        subprocess.run(["dpkg-deb", "--extract", str(deb), str(tree)], check=True)
    settings = {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-I{tree}/usr/include",
        "CGO_LDFLAGS": f"-L{tree}/usr/lib/x86_64-linux-gnu",
    }
    go_build.build_recipe(IGNITION, folder, progress, settings, IGNITION.linking)
    discard(debs)
    discard(tree)
