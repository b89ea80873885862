# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server with the CRD and our manifests, bases, and replicas that run as the manifests' service account."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cluster.running import RunningCluster
from lab.running import RunningLab
from tests.unit.liveimage.controller.objects import CRD
from tests.unit.liveimage.maker import LAYOUTS, Layout, make

from .world import MANIFESTS, Replica, World, kubeconfig

SMALL = 700  # bytes of an embed area that nothing fits into
NUMBERS = itertools.count(1)


def for_the_lab() -> dict[str, Any]:
    """The CRD with one exception: Kubernetes 1.20, built by a Go of today, takes an empty text for null."""
    found = yaml.safe_load(CRD.read_text())
    status = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    status["properties"]["conditions"]["items"]["properties"]["message"]["nullable"] = True
    return found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """An API server that knows PreprovisioningImages, with the manifests applied.

    It takes baremetal-operator's CRD as it is; what it then judges by has one word more.
    """
    with RunningLab(kind="dry") as lab:
        cluster = lab.cluster()
        for file in (CRD, tmp_path_factory.mktemp("crd") / "crd.json"):
            if file != CRD:
                file.write_text(json.dumps(for_the_lab()))
            cluster.kubectl("apply", "-f", str(file))
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(file))
        # This kubectl's kustomize cannot build on a folder beside its own.
        cluster.kubectl("apply", "-k", str(MANIFESTS / "base"))
        for name in ("role", "role_binding", "secrets_role"):
            cluster.kubectl("apply", "-f", str(MANIFESTS / "cluster" / f"{name}.yaml"))
        yield cluster


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x86_64, and an aarch64 whose embed area is too small for anything."""
    place = tmp_path_factory.mktemp("bases")
    make(place / "live.iso", LAYOUTS["2023-igninfo"])
    small = Layout(igninfo={"file": "images/ignition.img", "offset": 0, "length": SMALL})
    make(place / "live_aarch64.iso", small)
    for name in ("live.img", "live_aarch64.img"):
        (place / name).write_bytes(b"INITRD" * 3335)
    return place


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secret all replicas share."""
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text("0123456789abcdef" * 4)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="session")
def start(
    cluster: RunningCluster, bases: Path, key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Replica]:
    """``with start() as replica``: another replica."""
    account = kubeconfig(cluster, tmp_path_factory.mktemp("account"))
    return lambda *arguments, **more: Replica(more.pop("kubeconfig", account), bases, key, *arguments, **more)


@pytest.fixture(scope="module")
def replica(start: Callable[..., Replica]) -> Iterator[Replica]:
    """One that serves every namespace."""
    with start() as running:
        yield running.until_ready()


@pytest.fixture
def world(cluster: RunningCluster) -> World:
    """A namespace of the test's own."""
    return World(cluster, f"metal-{next(NUMBERS)}")
