# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Fetches one file over HTTP, verified by its digest, and reads the wanted members of an archive.

A download uses the proxies and CA of the system, and goes on where it was cut. A hostile archive does no harm.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import posixpath
import re
import shutil
import ssl
import subprocess
import tarfile
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os.path import dirname
from typing import IO, Any, BinaryIO

from .._common import web

_CHUNK = 1 << 18
#: How long one connection may be silent, in seconds.
_SILENCE = 30
#: Bytes that stay free on the disk.
RESERVE = 64 << 20
#: What is no secret of the user's headers.
_OPEN = ("user-agent",)
#: What every request sets itself.
_SET = ("accept-encoding", "range", "if-range")


class FetchError(Exception):
    """A file cannot be fetched; the text names the URL without credentials, and the reason."""


def public(url: str) -> str:
    """A URL as it may be shown: without user, password, query and fragment. Pure."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def secrets(urls: Iterable[str]) -> set[str]:
    """The passwords in URLs, which must not appear in any output. Pure."""
    found: set[str] = set()
    for url in urls:
        user = re.match(r"[a-z]+://[^/@?#]*:([^/@?#]+)@", url)
        if user:
            found.update((user.group(1), urllib.parse.unquote(user.group(1))))
        # a signature or a token
        found.update(value for value in re.findall(r"[?&][^=&#]+=([^&#]{8,})", url))
    return found


def url_error(url: str) -> str | None:
    """What is wrong with a URL; None when nothing is. Pure."""
    if not web.is_http_url(url) or re.search(r"[\x00-\x20\x7f]", url):
        return "must be an http or https URL"
    return None


#: An option of modules that fetch: what the environment of a task holds is on a command line for all to read.
PROXIES = {
    "type": "dict",
    "options": {
        "http": {"type": "str", "no_log": True},
        "https": {"type": "str", "no_log": True},
        "exceptions": {"type": "str"},
    },
}


def use_proxies(given: Mapping[str, Any] | None) -> None:
    """Let this process, and the programs that it starts, use the proxies; empty ones change nothing."""
    for name, variable in (("http", "http_proxy"), ("https", "https_proxy"), ("exceptions", "no_proxy")):
        value = (given or {}).get(name)
        if value:
            os.environ[variable] = os.environ[variable.upper()] = value


#: algorithm → hexadecimal digits
ALGORITHMS = {"sha256": 64, "sha512": 128}


class _Part(web.Download):
    """The file, as far as it is there, with the digest of that much; the rest comes from the network."""

    content_addressed = can_restart = True
    given_up = "%(reason)s"

    def __init__(self, url: str, path: str, algorithm: str, fetcher: Fetcher, deadline: float) -> None:
        self._path, self._algorithm, self._public = path, algorithm, public(url)
        try:
            location, login = web.split_login(url)
        except ValueError:
            raise FetchError(f"{self._public} is no URL: its address or its port is none") from None
        given = {name: value for name, value in fetcher.headers.items() if name.lower() not in _SET}
        shown = {name: value for name, value in given.items() if name.lower() in _OPEN}
        private = {"Authorization": login, **{name: value for name, value in given.items() if name not in shown}}
        super().__init__(
            self._public,
            location,
            shown,
            private,
            stall=_SILENCE,
            tries=fetcher.retries + 1,
            deadline=deadline,
            handlers=(urllib.request.HTTPSHandler(context=fetcher.tls),),
        )
        #: Whether bytes of an earlier connection are in it; bytes that came from the network, in all connections.
        self.resumed, self.came = False, 0
        self._digest = hashlib.new(algorithm)
        self._file: BinaryIO | None = None
        try:
            with open(path, "rb") as file:
                for chunk in iter(lambda: file.read(_CHUNK), b""):
                    self._digest.update(chunk)
                    self.received += len(chunk)
        except FileNotFoundError:
            pass

    @property
    def digest(self) -> str:
        """Of what is there."""
        return self._digest.hexdigest()

    def complete(self) -> None:
        """Bring what is missing."""
        try:
            with contextlib.ExitStack() as stack:
                for chunk in self.chunks():
                    self._file = self._file or stack.enter_context(open(self._path, "ab"))
                    self._file.write(chunk)
                    self._digest.update(chunk)
                    self.came += len(chunk)
        except OSError as error:
            raise FetchError(f"{self._public} cannot be saved to {self._path}: {error.strerror}") from error
        finally:
            self._file = None

    def refused(self, text: str, final: bool = False, status: int = 0) -> Exception:
        return FetchError(f"{self._public} cannot be fetched: {text}")

    def ready(self, coming: int | None) -> None:
        self.resumed = self.received > 0
        enough_space(dirname(self._path), coming or 0, self._public)

    def restart(self) -> None:
        """Throw away what is there."""
        super().restart()
        if self._file is not None:
            self._file.truncate(0)
        else:
            with open(self._path, "wb"):
                pass
        self.resumed, self._digest = False, hashlib.new(self._algorithm)


class Fetcher:
    """Fetches files with the same headers, CA and limits.

    ``retries``: connections that bring nothing, after the first one; ``timeout``: seconds for one file.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        extra_ca: Iterable[str] = (),
        retries: int = 4,
        timeout: float = 900,
    ) -> None:
        self.headers, self.retries, self._timeout = dict(headers or {}), retries, timeout
        self.tls = ssl.create_default_context()
        # new with Python 3.13: authorities of one's own often lack what it asks for
        self.tls.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        for text in extra_ca:
            self.tls.load_verify_locations(cadata=text)

    def fetch(self, url: str, path: str, digest: str, algorithm: str = "sha256") -> int:
        """Bring the file with this digest to ``path``, where a part of it may lie; returns the bytes that came.

        Raises FetchError. A part stays for the next run, a wrong file does not.
        """
        part = _Part(url, path, algorithm, self, time.monotonic() + self._timeout)
        if part.received and part.digest == digest:
            return 0
        while True:
            part.complete()
            found, resumed = part.digest, part.resumed
            if found == digest:
                return part.came
            part.restart()
            if not resumed:
                raise FetchError(
                    f"{public(url)} has the wrong content: expected {algorithm} {digest}, got {found}; check the "
                    "version, the digest and the mirror"
                )
            # the part that was there may have been of another file: once more, from the beginning


def enough_space(folder: str, size: int, what: str) -> None:
    """Raise FetchError unless ``size`` bytes fit there."""
    free = shutil.disk_usage(folder).free
    if free < size + RESERVE:
        raise FetchError(f"{what} needs {size} bytes in {folder}, where {free} are free ({RESERVE} stay free)")


_ZSTD = b"\x28\xb5\x2f\xfd"


class ArchiveError(FetchError):
    """The archive does not hold what is wanted, or what it holds is not safe."""


def member_name(name: str) -> str:
    """A member's name without a leading "./"; raises ArchiveError for one that leads elsewhere. Pure."""
    clean = posixpath.normpath(name)
    if not name or name.startswith("/") or clean == ".." or clean.startswith("../") or "\0" in name or "\n" in name:
        raise ArchiveError(f"the archive has a member with the name {name!r}, which is not safe")
    return clean


def matches(pattern: str, name: str) -> bool:
    """Whether a name has the pattern's form, folder by folder: * does not go into folders. Pure."""
    wanted, found = posixpath.normpath(pattern).split("/"), name.split("/")
    return len(wanted) == len(found) and all(fnmatch.fnmatchcase(*pair) for pair in zip(found, wanted))


def extract(path: str, wanted: Sequence[str], take: Callable[[int, str, Any, int], None], zstd: str = "zstd") -> None:
    """Call ``take(pattern's index, member's name, file, size)`` for every regular member that a pattern means.

    ``wanted`` are the patterns; each must mean at least one member. Raises ArchiveError.
    """
    seen, used = set(), set()
    with _opened(path, zstd) as archive:
        for member in archive:
            name = member_name(member.name)
            indexes = [index for index, pattern in enumerate(wanted) if matches(pattern, name)]
            if not indexes or member.isdir():
                continue
            if not member.isreg():
                raise ArchiveError(f"the archive's member {name} is not a regular file")
            if name in seen:
                raise ArchiveError(f"the archive has the member {name} twice")
            seen.add(name)
            for index in indexes[:1]:
                used.add(index)
                take(index, name, archive.extractfile(member), member.size)
    unused = [pattern for index, pattern in enumerate(wanted) if index not in used]
    if unused:
        raise ArchiveError(f"the archive has no member {', '.join(unused)}")


@contextlib.contextmanager
def _opened(path: str, zstd: str) -> Iterator[tarfile.TarFile]:
    """A tar file as a stream, unpacked by Python, or by the program zstd."""
    with contextlib.ExitStack() as stack:
        try:
            with open(path, "rb") as file:
                is_zstd = file.read(len(_ZSTD)) == _ZSTD
            if is_zstd:
                # AnsibleModule.run_command cannot stream.
                process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                    [zstd, "-dc", "--", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
                )
                stack.enter_context(process)
                stack.callback(process.kill)
                tar = stack.enter_context(tarfile.open(fileobj=process.stdout, mode="r|"))
            else:
                tar = stack.enter_context(tarfile.open(path, "r|*"))
        except FileNotFoundError as error:
            raise ArchiveError(f"the archive is packed with zstd, and the program {zstd} is not there") from error
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ArchiveError(f"the archive cannot be read: {error}") from error
        try:
            yield tar
        except (tarfile.TarError, EOFError, UnicodeError, zlib.error) as error:
            raise ArchiveError(f"the archive cannot be read: {error}") from error


def copy(source: Any, target: IO[bytes], limit: int) -> str:
    """Copy exactly ``limit`` bytes, and give their SHA-256; raises ArchiveError when there are fewer."""
    digest, left = hashlib.sha256(), limit
    while left:
        data = source.read(min(_CHUNK, left))
        if not data:
            raise ArchiveError("the archive ends too early")
        target.write(data)
        digest.update(data)
        left -= len(data)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()
