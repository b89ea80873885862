# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Paths and URLs of images, and the secret that makes paths unguessable and signs URLs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import stat
import time
import urllib.parse

from .image_error import ImageError, failing

LONGEST_PATH = 64  # characters of a path that every BMC takes
_NAME_DIGITS = 26  # base32 digits: 130 bits
_SIGNATURE_DIGITS = 20  # base32 digits: 100 bits
_SIGNED = re.compile(rf"/([0-9a-f]{{1,10}})\.([a-z2-7]{{{_SIGNATURE_DIGITS}}})(/[^/]+)\Z")
_PLAIN = re.compile(r"[A-Za-z0-9._~/-]*\Z")
SHORTEST_SECRET = 32  # characters
_LONGEST_SECRET = 4096
_MODE_OF_OTHERS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


def public_path(secret: bytes, key: str, suffix: str) -> str:
    """The path of an image, from the server's secret and what the image is of (namespace, name, architecture …)."""
    return "/" + _mac(secret, b"name\0" + key.encode("utf-8", "surrogateescape"), _NAME_DIGITS) + suffix


def sign_path(secret: bytes, path: str, expires: int) -> str:
    """The path with a moment (seconds since 1970) after which it opens nothing."""
    return f"/{expires:x}.{_signature(secret, path, expires)}{path}"


def unsign_path(secret: bytes, path: str, now: float) -> str | None:
    """The plain path of a signed one; None when the signature is not ours or has expired."""
    match = _SIGNED.match(path)
    if not match:
        return None
    expires, signature, plain = int(match.group(1), 16), match.group(2), match.group(3)
    good = hmac.compare_digest(signature, _signature(secret, plain, expires))
    return plain if good and now < expires else None


def _signature(secret: bytes, path: str, expires: int) -> str:
    return _mac(secret, b"sign\0%d\0" % expires + path.encode("utf-8"), _SIGNATURE_DIGITS)


def _mac(secret: bytes, message: bytes, digits: int) -> str:
    digest = hmac.new(secret, message, hashlib.sha256).digest()
    return base64.b32encode(digest).decode("ascii").lower()[:digits]


def static_path(name: str, secret: bytes | None = None) -> str:
    """The path of the image with this name: the name itself, or with a secret one that cannot be guessed."""
    if secret is None:
        return "/" + urllib.parse.quote(name, safe="", errors="surrogateescape")
    return public_path(secret, "static/" + name, os.path.splitext(name)[1])


class UrlBuilder:
    """From registered paths to URLs."""

    def __init__(self, address: str, secret: bytes = b"", signed: int = 0) -> None:
        """``address``: what they begin with; ``signed``: seconds each is good for at least, 0: for ever."""
        self._address, self._secret, self._signed = address, secret, signed

    def of(self, path: str) -> str:
        """The URL; a signed one stays the same for one period and is valid for another one."""
        if self._signed:
            path = sign_path(self._secret, path, (int(time.time()) // self._signed + 2) * self._signed)
        return self._address + path


class RequestPaths:
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
        return path if self._secret is None else unsign_path(self._secret, path, time.time())


def load_secret(path: str) -> bytes:
    """The secret of a file, which is made when there is nothing yet; white space at its end does not count."""
    if not os.path.lexists(path):
        _make_secret(path)
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(_LONGEST_SECRET + 1).rstrip()
    except OSError as error:
        link = f", a link to {os.readlink(path)}," if os.path.islink(path) else ""
        raise ImageError(
            f"secret-file {path}{link} cannot be read: {error.strerror or error}; name a file that this user may read, "
            "or a path where there is nothing yet: a secret is made there"
        ) from error
    if stat.S_IMODE(found.st_mode) & _MODE_OF_OTHERS:
        raise ImageError(
            f"secret-file {path} has mode {stat.S_IMODE(found.st_mode):04o}: others may read or write it; chmod 600 "
            "it, and make another secret if they could have read this one"
        )
    if not SHORTEST_SECRET <= len(data) <= _LONGEST_SECRET:
        raise ImageError(
            f"secret-file {path} holds {len(data)} characters; between {SHORTEST_SECRET} and {_LONGEST_SECRET} "
            "are needed, such as from: openssl rand -hex 32"
        )
    return data


def _make_secret(path: str) -> None:
    """A new secret, whole or not there; of two programs that start at once the first one's stays."""
    draft = f"{path}.{os.getpid()}"
    with failing(f"secret-file {path} is not there and cannot be made"):
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(os.urandom(32).hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
