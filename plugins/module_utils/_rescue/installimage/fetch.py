# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Gets the image into the rescue's memory, and proves it by its digest before anything is written to a disk."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from ..._common import web
from ..._common.text import whole_number
from .tools import Refused

CHUNK = 1024 * 1024
#: Memory that is left to the rescue itself and to installimage or an image command.
RESERVE = 256 * 1024 * 1024
IMAGE_WAY_OUT = "use a smaller image, or put it where the rescue can read it and give image.path"
STALL = 60.0
TRIES = 6
_BUSY = (408, 425, 429, 500, 502, 503, 504)


class _Changed(Exception):
    """The file on the server is another one than a moment ago."""


def mebibytes(count):
    """Bytes as people read them."""
    return "%d MiB" % (count // (1024 * 1024))


def check_room(wanted, available, what, way_out=IMAGE_WAY_OUT):
    """Refuse what does not fit into the memory of the rescue (bytes)."""
    if wanted + RESERVE > available:
        raise Refused(
            "%s: it needs %s of the rescue's memory, and %s are free of which %s stay with the rescue; %s"
            % (what, mebibytes(wanted), mebibytes(available), mebibytes(RESERVE), way_out),
            permanent=True,
        )


def free_memory(folder, meminfo="/proc/meminfo"):
    """Bytes that a file in ``folder`` may take: free memory, and what the file system allows if it says so."""
    with open(meminfo) as lines:
        found = re.search(r"^MemAvailable:\s+([0-9]+) kB", lines.read(), re.MULTILINE)
    memory = (whole_number(found.group(1)) or 0) * 1024 if found else 0
    status = os.statvfs(folder)
    return min(memory, status.f_bavail * status.f_frsize) if status.f_blocks else memory


def digest_of(path, tick=lambda count: None):
    """``sha256:…`` of a file; ``tick`` is told the bytes read so far."""
    digest, count = hashlib.sha256(), 0
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            digest.update(chunk)
            count += len(chunk)
            tick(count)
    return "sha256:" + digest.hexdigest()


def verify(found, wanted, what):
    """Refuse content whose digest is not the wanted one."""
    if wanted and found != wanted:
        raise Refused(
            "%s: its digest is %s, expected %s; nothing was written to a disk. Correct image.digest, or find out who "
            "changed the file" % (what, found, wanted),
            permanent=True,
        )


#: How a file begins that was packed so, its name, and the endings of a name that say it.
_PACKED: tuple[tuple[bytes, str, tuple[str, ...]], ...] = (
    (b"\x1f\x8b", "gzip", (".tar.gz", ".tgz")),
    (b"BZh", "bzip2", (".tar.bz", ".tar.bz2", ".tbz", ".tbz2")),
    (b"\xfd7zXZ\x00", "xz", (".tar.xz", ".txz")),
    (b"\x28\xb5\x2f\xfd", "zstd", (".tar.zst",)),
)


def check_packing(path, name):
    """Refuse a file that installimage would unpack in vain, as it reads from the name how the file is packed."""
    with open(path, "rb") as stream:
        head = stream.read(512)
    packed, endings = next(
        ((how, names) for magic, how, names in _PACKED if head.startswith(magic)),
        ("tar", (".tar",)),
    )
    if packed == "tar" and head[257:262] != b"ustar":
        raise Refused("the image is no tar archive; installimage unpacks a root file system, not a disk", True)
    if not name.endswith(endings):
        raise Refused(
            "image.name %s: the image is packed by %s; let the name end with %s" % (name, packed, " or ".join(endings)),
            permanent=True,
        )


class Download:
    """One file over HTTP, into a file that is only named when it is complete and right."""

    def __init__(self, url, target, shown, tick=lambda done, size: None, pause=1.0):
        self._url, self._login = _split_login(url)
        self._target, self._shown, self._tick, self._pause = target, shown, tick, pause
        self._part = target + ".part"
        self._validator, self._size = "", None
        self._opener = urllib.request.build_opener(web.Redirects)

    def fetch(self, wanted=""):
        """Download and verify; returns the digest."""
        open(self._part, "wb").close()
        failures, restarts, reason = 0, 0, ""
        while True:
            before = os.path.getsize(self._part)
            try:
                self._go_on(before)
                break
            except _Changed:
                restarts += 1
                if restarts > 2:
                    raise Refused("%s: the file keeps changing on the server" % self._shown) from None
                self._validator, self._size = "", None
                os.truncate(self._part, 0)
                continue
            except (http.client.HTTPException, OSError) as error:
                reason = str(error) or type(error).__name__
            failures = 0 if os.path.getsize(self._part) > before else failures + 1
            if failures >= TRIES:
                raise Refused("%s: given up after %d tries in a row: %s" % (self._shown, failures, reason))
            time.sleep(min(self._pause * 2**failures, 15))
        found = digest_of(self._part)
        if wanted and found != wanted:
            os.unlink(self._part)
        verify(found, wanted, self._shown)
        os.replace(self._part, self._target)
        return found

    def _go_on(self, start):
        with self._ask(start) as response:
            start = self._place(response, start)
            if self._size is not None:
                check_room(self._size - start, free_memory(os.path.dirname(self._target)), self._shown)
            with open(self._part, "r+b") as stream:
                stream.truncate(start)
                stream.seek(start)
                for chunk in iter(lambda: response.read(CHUNK), b""):
                    if self._size is None:
                        check_room(len(chunk), free_memory(os.path.dirname(self._target)), self._shown)
                    stream.write(chunk)
                    start += len(chunk)
                    self._tick(start, self._size)
        if self._size is not None and start != self._size:
            raise http.client.HTTPException("the connection ended after %d of %d bytes" % (start, self._size))

    def _place(self, response, start):
        """Where the answer begins; what is there already must be of the same file."""
        tag = response.headers.get("ETag", "")
        validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
        if response.status == 206:
            place = re.match(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)\Z", response.headers.get("Content-Range", ""))
            if not place or whole_number(place.group(1)) != start or place.group(2) not in ("*", str(self._size)):
                raise _Changed
            return start
        length = response.headers.get("Content-Length", "").strip(" \t")
        self._validator, self._size = validator, whole_number(length)
        if length and self._size is None:
            raise Refused("%s: the server does not say the size as a number (Content-Length)" % self._shown)
        return 0

    def _ask(self, start):
        request = urllib.request.Request(self._url, headers={"User-Agent": web.AGENT})
        request.add_header("Accept-Encoding", "identity")
        if self._login:
            request.add_unredirected_header("Authorization", self._login)
        # Without a validator, what is there may be of another version: start over.
        if start and self._validator:
            request.add_header("Range", "bytes=%d-" % start)
            request.add_header("If-Range", self._validator)
        try:
            return self._opener.open(request, timeout=STALL)
        except urllib.error.HTTPError as error:
            code, reason = error.code, error.reason
            error.close()
            if code == 416:
                raise _Changed from None
            text = "HTTP %d %s" % (code, reason)
            if code in _BUSY:
                raise http.client.HTTPException(text) from None
            raise Refused(
                "%s: %s; check the URL and who may read it" % (self._shown, text), code in (404, 410)
            ) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Refused("%s: %s" % (self._shown, error.reason.verify_message), True) from None
            raise
        except http.client.HTTPException:
            raise
        except web.BadRedirect as error:
            raise Refused("image.url: %s" % error, True) from None
        except ValueError as error:
            # by urllib, of a redirect; UnicodeError is one, of a host name
            raise Refused("%s: this or a redirect of the server is no URL: %s" % (self._shown, error), True) from None


def _split_login(url):
    try:
        return web.split_login(url)
    except ValueError:
        # its text may hold a piece of the login
        raise Refused("image.url: its address or its port is none", permanent=True) from None
