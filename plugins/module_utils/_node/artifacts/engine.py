# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Looks which artifacts are there, fetches the others side by side, and installs them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..machine.host import Host
from ..machine.pending import Pending
from . import fetch, install, record

#: Parts of files lie here until they are whole; only root may read and write them.
CACHE = "/var/cache/kubenode/artifacts"


def plan(host: Host, artifacts: Sequence[dict[str, Any]], parallel: int) -> list[str | None]:
    """Why each artifact must be installed, or None, in order."""
    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(lambda artifact: record.missing(host, artifact), artifacts))


def change_id(artifact: dict[str, Any]) -> str:
    """How node_settings calls a change of this artifact."""
    return "artifact:" + artifact["name"]


@contextlib.contextmanager
def locked(host: Host, seconds: float) -> Iterator[None]:
    """Only one run at a time; raises FetchError when another one takes too long."""
    folder = host.path(CACHE)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    text = "another run has been fetching artifacts for %d s; wait for it, or end it" % seconds
                    raise fetch.FetchError(text) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(fd)


def apply(
    host: Host, artifacts: Sequence[dict[str, Any]], fetcher: fetch.Fetcher, pending: Pending, parallel: int
) -> list[tuple[int, float, str | None]]:
    """Fetch and install; a list of (bytes, seconds, error or None) in order. One that fails stops no other."""
    lock = threading.Lock()

    def one(artifact: dict[str, Any]) -> tuple[int, float, str | None]:
        begin = time.monotonic()
        try:
            came = _bring(host, artifact, fetcher, pending, lock)
        except (fetch.FetchError, OSError) as error:
            return 0, time.monotonic() - begin, "%s %s: %s" % (artifact["name"], artifact["version"], error)
        return came, time.monotonic() - begin, None

    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(one, artifacts))


def _bring(host: Host, artifact: dict[str, Any], fetcher: fetch.Fetcher, pending: Pending, lock: threading.Lock) -> int:
    if record.missing_files(host, artifact) is None:
        install.links(host, artifact)
        return 0
    if artifact["kind"] == "binary" and record.proves_itself(host, artifact):
        install.links(host, artifact)
        record.write(host, artifact, {artifact["install"][0]["path"]: artifact["sha256"]})
        return 0
    algorithm, digest = record.pin(artifact)
    part = os.path.join(host.path(CACHE), "%s-%s.part" % (artifact["name"], digest))
    came = fetcher.fetch(artifact["url"], part, digest, algorithm)
    with lock:
        # before the files change, so that a run that is cut off leaves the note which units to restart
        pending.add([change_id(artifact)])
    try:
        digests = install.install(host, artifact, part)
    except fetch.FetchError as error:
        raise fetch.FetchError("%s: %s" % (fetch.public(artifact["url"]), error)) from error
    record.write(host, artifact, digests)
    os.unlink(part)
    return came
