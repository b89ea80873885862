# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Puts the files of a fetched artifact in their places: all of them are ready before the first one is renamed."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from typing import Any

from ..machine import files
from ..machine.host import Host
from . import archive, fetch


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
        made = files.make_parents(self._host, path)
        folder = os.path.dirname(self._host.path(path))
        fetch.enough_space(folder, size, self._what)
        fd, temporary = tempfile.mkstemp(prefix=files.PREFIX, dir=folder)
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
            files.sync_folder(self._host.path(folder))
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
        data = self._source.read(size)
        self._digest.update(data)
        return data


def install(host: Host, artifact: dict[str, Any], part: str) -> dict[str, str]:
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


def links(host: Host, artifact: dict[str, Any]) -> None:
    """Make the artifact's links."""
    paths = [link["path"] for link in artifact.get("links") or []]
    for link in artifact.get("links") or []:
        files.write_link(host, link["path"], link["target"])
    if paths:
        _label(host, paths)


def _label(host: Host, paths: list[str]) -> None:
    """Give new files the SELinux label that the policy has for them."""
    if host.text("/sys/fs/selinux/enforce") is not None and host.find("restorecon"):
        host.run(["restorecon", "--"] + [host.path(path) for path in paths], 60)
