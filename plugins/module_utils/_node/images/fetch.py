# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""An archive of images as a verified file: one that lies on the machine, or a download that goes again after use."""

from __future__ import annotations

import contextlib
import os
import tempfile

from ..artifacts import fetch

#: Beside the images' own place, since /tmp may be small or memory.
FOLDER = "/var/lib/kubenode"


class FetchFailed(OSError):
    """An archive that cannot be had, or is not the right one; the text says which and why."""


@contextlib.contextmanager
def archive_file(host, one, given):
    """The path of an archive with the right sum. Raises :class:`FetchFailed`."""
    wanted = one["sha256"].lower()
    if not one.get("url"):
        found = host.sha256(one["path"])
        if found is None:
            raise FetchFailed("archive %s cannot be read on the machine" % one["path"])
        _compare(one["path"], wanted, found)
        yield host.path(one["path"])
        return
    if fetch.url_error(one["url"]):
        raise FetchFailed("%s: only http and https can be fetched" % fetch.public(one["url"]))
    os.makedirs(host.path(FOLDER), 0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="images-", dir=host.path(FOLDER)) as folder:
        path = os.path.join(folder, "archive.tar")
        try:
            fetch.Fetcher(given["headers"], timeout=given["timeout"]).fetch(one["url"], path, wanted)
        except (fetch.FetchError, OSError) as error:
            raise FetchFailed("%s; nothing was imported" % error) from error
        yield path


def _compare(source, wanted, found):
    if wanted != found:
        raise FetchFailed("%s has the SHA-256 sum %s, not %s; nothing was imported" % (source, found, wanted))
