# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes of the lab, its etcd and its containerd: which releases, and how they are built of Go modules.

The digest of a recipe names the folder of its result: a change here costs every user a quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Sequence

from .go_build import Recipe

KUBERNETES = "1.37.2"
#: the oldest release whose nodes may join it, and of which only the programs of a node are built
OLDEST = "1.34.4"
#: release → the sum of its module, in https://sum.golang.org
_SUMS = {
    KUBERNETES: "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE=",
    OLDEST: "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=",
}
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm", "kubectl")
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


def recipe(version: str, digest: str, name: str = "kubernetes", programs: Sequence[str] = _PROGRAMS) -> Recipe:
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


RECIPE = recipe(KUBERNETES, _SUMS[KUBERNETES])
#: with a name of its own: results of one name take each other's place in the cache
OLDEST_RECIPE = recipe(OLDEST, _SUMS[OLDEST], "kubernetes-oldest", NODE_PROGRAMS)
