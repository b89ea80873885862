# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Paths of images that have a name, their URLs, and how the many ways to write a path become the one that is there."""

from __future__ import annotations

import os
import re
import time
import urllib.parse

from ..server import names

_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*\Z")


def static_path(name: str, secret: bytes | None = None) -> str:
    """The path of the image with this name: the name itself, or with a secret one that nobody can guess."""
    if secret is None:
        return "/" + urllib.parse.quote(name, safe="", errors="surrogateescape")
    return names.public(secret, "static/" + name, os.path.splitext(name)[1])


class Urls:
    """From registered paths to URLs."""

    def __init__(self, address: str, secret: bytes = b"", signed: int = 0) -> None:
        """``address``: what they begin with; ``signed``: seconds each is good for at least, 0: for ever."""
        self._address, self._secret, self._signed = address, secret, signed

    def of(self, path: str) -> str:
        """The URL; a signed one stays the same for a while and is good for as long again."""
        if self._signed:
            path = names.sign(self._secret, path, (int(time.time()) // self._signed + 2) * self._signed)
        return self._address + path


class Asked:
    """From the path of a request to the one that is registered."""

    def __init__(self, prefix: str = "", secret: bytes | None = None) -> None:
        """``prefix``: the path of the publish address, which a proxy may or may not take away; ``secret``: only signed
        paths open anything."""
        self._prefix, self._secret = prefix.rstrip("/"), secret

    def __call__(self, path: str) -> str | None:
        """The registered path; None when the request may not have it."""
        if not _PLAIN.match(path):
            path = urllib.parse.quote(urllib.parse.unquote_to_bytes(path.encode("latin-1")), safe="/")
        if self._prefix and path.startswith(self._prefix + "/"):
            path = path[len(self._prefix) :]
        return path if self._secret is None else names.unsign(self._secret, path, time.time())
