# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Fetches and installs artifacts: side by side, one run at a time, whole files only."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..machine import atomic
from ..machine.host import Host
from ..machine.pending import Pending
from . import archive, fetch, record
from .artifact_spec import Artifact


class _Staged:
    """Temporary neighbours of the files to come."""

    def __init__(self, host: Host, what: str) -> None:
        self._host, self._what = host, what
        #: path → its temporary neighbour, the digest so far, the folders that were made
        self._files: dict[str, tuple[str, Any, list[str]]] = {}

    def add(self, path: str, mode: int, source: Any, size: int) -> None:
        """Copy a stream beside its place."""
        if path in self._files:
            raise archive.ArchiveError("two members of %s would become %s" % (self._what, path))
        status = self._host.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise archive.ArchiveError("%s is a directory" % path)
        made = atomic.make_parents(self._host, path)
        folder = os.path.dirname(self._host.path(path))
        fetch.enough_space(folder, size, self._what)
        fd, temporary = tempfile.mkstemp(prefix=atomic.PREFIX, dir=folder)
        digest = hashlib.sha256()
        self._files[path] = (temporary, digest, made)
        with os.fdopen(fd, "wb") as target:
            archive.copy(_Hashed(source, digest), target, size)
            os.fchmod(fd, mode)

    def commit(self) -> dict[str, str]:
        """Rename them all; returns {path: sha256}."""
        digests = {}
        for path, (temporary, digest, _made) in list(self._files.items()):
            os.rename(temporary, self._host.path(path))
            digests[path] = digest.hexdigest()
            del self._files[path]
        for folder in {os.path.dirname(path) for path in digests}:
            atomic.sync_folder(self._host.path(folder))
        return digests

    def discard(self) -> None:
        """Remove what was not renamed."""
        for temporary, _digest, _made in self._files.values():
            os.unlink(temporary)
        self._files.clear()


class _Hashed:
    """A stream that hashes what is read from it."""

    def __init__(self, source: Any, digest: Any) -> None:
        self._source, self._digest = source, digest

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data: bytes = self._source.read(size)
        self._digest.update(data)
        return data


def install(host: Host, artifact: Artifact, part: str) -> dict[str, str]:
    """Install from the verified file ``part``; returns {path: sha256}. Raises FetchError and OSError."""
    staged = _Staged(host, artifact["name"])
    entries = artifact["install"]
    try:
        if artifact["kind"] == "binary":
            with open(part, "rb") as source:
                size = os.fstat(source.fileno()).st_size
                staged.add(entries[0]["path"], int(entries[0].get("mode", "0755"), 8), source, size)
        else:

            def take(index: int, name: str, source: Any, size: int) -> None:
                entry = entries[index]
                path = entry.get("path") or os.path.join(entry["directory"], os.path.basename(name))
                staged.add(path, int(entry.get("mode", "0755"), 8), source, size)

            archive.extract(part, [entry["member"] for entry in entries], take, host.find("zstd") or "zstd")
        digests = staged.commit()
    finally:
        staged.discard()
    _label(host, list(digests))
    links(host, artifact)
    return digests


def links(host: Host, artifact: Artifact) -> None:
    """Make the artifact's links."""
    paths = [link["path"] for link in artifact.get("links") or []]
    for link in artifact.get("links") or []:
        atomic.write_link(host, link["path"], link["target"])
    if paths:
        _label(host, paths)


def _label(host: Host, paths: list[str]) -> None:
    """Give new files the SELinux label that the policy has for them."""
    if host.text("/sys/fs/selinux/enforce") is not None and host.find("restorecon"):
        host.run(["restorecon", "--"] + [host.path(path) for path in paths], 60)


#: Parts of files lie here until they are whole; only root may read and write them.
CACHE = "/var/cache/kubenode/artifacts"


def plan(host: Host, artifacts: Sequence[Artifact], parallel: int) -> list[str | None]:
    """Why each artifact must be installed, or None, in order."""
    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(lambda artifact: record.missing(host, artifact), artifacts))


def change_id(artifact: Artifact) -> str:
    """How node_settings calls a change of this artifact."""
    return f"artifact:{artifact['name']}"


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
    host: Host, artifacts: Sequence[Artifact], fetcher: fetch.Fetcher, pending: Pending, parallel: int
) -> list[tuple[int, float, str | None]]:
    """Fetch and install; a list of (bytes, seconds, error or None) in order. One that fails stops no other."""
    lock = threading.Lock()

    def one(artifact: Artifact) -> tuple[int, float, str | None]:
        begin = time.monotonic()
        try:
            came = _bring(host, artifact, fetcher, pending, lock)
        except (fetch.FetchError, OSError) as error:
            return 0, time.monotonic() - begin, "%s %s: %s" % (artifact["name"], artifact["version"], error)
        return came, time.monotonic() - begin, None

    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(one, artifacts))


def _bring(host: Host, artifact: Artifact, fetcher: fetch.Fetcher, pending: Pending, lock: threading.Lock) -> int:
    if record.missing_files(host, artifact) is None:
        links(host, artifact)
        return 0
    if artifact["kind"] == "binary" and record.proves_itself(host, artifact):
        links(host, artifact)
        record.write(host, artifact, {artifact["install"][0]["path"]: str(artifact["sha256"])})
        return 0
    algorithm, digest = record.pin(artifact)
    part = os.path.join(host.path(CACHE), "%s-%s.part" % (artifact["name"], digest))
    came = fetcher.fetch(artifact["url"], part, str(digest), algorithm)
    with lock:
        # before the files change, so that a run that is cut off leaves the note which units to restart
        pending.add([change_id(artifact)])
    try:
        digests = install(host, artifact, part)
    except fetch.FetchError as error:
        raise fetch.FetchError("%s: %s" % (fetch.public(artifact["url"]), error)) from error
    record.write(host, artifact, digests)
    os.unlink(part)
    return came
