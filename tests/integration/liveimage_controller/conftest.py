# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server with the CRD and our manifests, bases, and replicas that run as the manifests' service account."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cluster.running_cluster import RunningCluster
from tests.unit.liveimage.maker import LAYOUTS, Layout, make

from .world import MANIFESTS, Replica, World, kubeconfig, new_cluster

SMALL = 700  # bytes of an embed area that nothing fits into
NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    """One with the manifests applied."""
    with new_cluster() as cluster:
        cluster.kubectl("apply", "-k", str(MANIFESTS / "cluster"))
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
