# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pytest fixtures: labs of every kind. Imported by tests/conftest.py."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

# The lab's own dependencies are only needed where a lab is asked for; unit tests run without them.
if TYPE_CHECKING:
    from .coreos import LiveImage
    from .running import RunningLab

LabFactory = Callable[..., "RunningLab"]


def _open(**options: Any) -> RunningLab:
    from .running import RunningLab

    running = RunningLab(**options)
    running.open()
    return running


def _require_root(kind: str) -> None:
    if os.geteuid() != 0:
        pytest.fail(f"a lab of kind {kind} needs root; run as root, or leave these tests out with -m 'not {kind}'")


@pytest.fixture
def lab() -> Iterator[LabFactory]:
    """Make labs: ``lab(kind="dry", profile="hetzner", seed=1)``; they are closed after the test."""
    opened: list[RunningLab] = []

    def make(kind: str = "dry", **options: Any) -> RunningLab:
        if kind != "dry":
            _require_root(kind)
        opened.append(_open(kind=kind, **options))
        return opened[-1]

    yield make
    for running in reversed(opened):
        running.close()


@pytest.fixture
def lab_dry() -> Iterator[RunningLab]:
    """A fresh lab whose machines only keep their power state."""
    running = _open(kind="dry")
    yield running
    running.close()


@pytest.fixture(scope="session")
def lab_nspawn() -> Iterator[RunningLab]:
    """One lab with nspawn machines for the whole run; tests use server names of their own."""
    yield from _shared("nspawn")


@pytest.fixture(scope="session")
def lab_qemu() -> Iterator[RunningLab]:
    """One lab with QEMU machines for the whole run; tests use server names of their own."""
    yield from _shared("qemu")


def _shared(kind: str) -> Iterator[RunningLab]:
    _require_root(kind)
    running = _open(kind=kind, name=f"pytest-{os.getpid()}")
    yield running
    running.close()


@pytest.fixture(scope="session")
def coreos() -> LiveImage:
    """The lab's live image; tests that ask for it do not wait for its build."""
    from .coreos import ensure

    return ensure()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Build what takes minutes, once, before a test's time limit begins.

    That is the lab's Kubernetes, containerd and crictl for the marker ``cluster``, with the programs of a node of the
    releases that its arguments name, the mirror and the images of its suites for ``mirror``, the live image for tests
    with the fixture ``coreos``.
    """
    marks = list(item.iter_markers("cluster"))
    if marks:
        from .cluster import ensure, ensure_containerd, ensure_crictl, ensure_node
        from .errors import ClusterError, Unavailable

        try:
            ensure()
            ensure_containerd()
            ensure_crictl()
            for version in (one for mark in marks for one in mark.args):
                ensure_node(version)
        except Unavailable as error:
            item.add_marker(pytest.mark.skip(reason=str(error)))
        except ClusterError:
            pass  # the test will say what is wrong
    if item.get_closest_marker("mirror") is not None and os.geteuid() == 0:
        from .errors import ClusterError, ImageError
        from .mirror import prepare

        with contextlib.suppress(ClusterError, ImageError):
            prepare()
    if "coreos" in getattr(item, "fixturenames", ()):
        from . import coreos as live
        from .errors import ImageError

        with contextlib.suppress(ImageError):
            live.ensure()
    return (yield)
