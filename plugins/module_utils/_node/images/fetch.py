# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""An archive of images as a verified file: one that lies on the machine, or a download that goes again after use."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request

#: Beside the images' own place, since /tmp may be small or memory.
FOLDER = "/var/lib/kubenode"
_CHUNK = 1 << 20


class FetchFailed(OSError):
    """An archive that cannot be had, or is not the right one; the text says which and why."""


def shown(url):
    """The URL without credentials, query and fragment."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


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
    if urllib.parse.urlsplit(one["url"]).scheme not in ("http", "https"):
        raise FetchFailed("%s: only http and https can be fetched" % shown(one["url"]))
    os.makedirs(host.path(FOLDER), 0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="images-", dir=host.path(FOLDER)) as folder:
        path = os.path.join(folder, "archive.tar")
        _compare(shown(one["url"]), wanted, _download(one["url"], path, given))
        yield path


def _download(url, path, given):
    """Stream to a file; the SHA-256 sum as hexadecimal digits."""
    digest = hashlib.sha256()
    try:
        request = urllib.request.Request(url, headers=given["headers"])
        # an opener of its own: proxies come from the environment at this moment
        opener = urllib.request.build_opener()
        with opener.open(request, timeout=given["timeout"]) as answer, open(path, "wb") as file:
            for chunk in iter(lambda: answer.read(_CHUNK), b""):
                digest.update(chunk)
                file.write(chunk)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise FetchFailed("%s cannot be downloaded: %s" % (shown(url), error)) from error
    return digest.hexdigest()


def _compare(source, wanted, found):
    if wanted != found:
        raise FetchFailed("%s has the SHA-256 sum %s, not %s; nothing was imported" % (source, found, wanted))
