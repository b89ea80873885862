# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes of the lab, and its etcd: which releases, and how they are built of Go modules.

The digest of a recipe names the folder of its result: a change here costs every user a quarter of an hour.
"""

from __future__ import annotations

from .modules import Recipe

KUBERNETES = "1.37.2"
#: of the module, in https://sum.golang.org
_SUM = "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm", "kubectl")
_STAMPS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def recipe(version: str, digest: str) -> Recipe:
    """The programs of a release whose module has this sum."""
    major, minor, patch = version.split(".")
    # without them the programs call themselves v0.0.0
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return Recipe(
        name="kubernetes",
        module="k8s.io/kubernetes",
        version=f"v{version}",
        sum=digest,
        programs={name: f"k8s.io/kubernetes/cmd/{name}" for name in _PROGRAMS},
        stamps={f"{place}.{key}": text for place in _STAMPS for key, text in values.items()},
        own=f"v0.{minor}.{patch}",
        tags=("selinux", "notest", "grpcnotrace"),  # as in its own build
    )


RECIPE = recipe(KUBERNETES, _SUM)
ETCD = Recipe(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",
    version="v3.6.16",
    sum="h1:sLkpvz3RFtiNd/yPrZBKz5kT+XO1ZJkhmuUJeqc7OmA=",
    programs={"etcd": "go.etcd.io/etcd/server/v3"},
)
