# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Gets the image into the rescue's memory, and proves it by its digest before anything is written to a disk."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import BinaryIO

from ..._common import web
from ..._common.text import whole_number
from .processes import Refused

CHUNK = web.CHUNK
#: Memory that is left to the rescue itself and to installimage or an image command.
RESERVE = 256 * 1024 * 1024
IMAGE_WAY_OUT = "use a smaller image, or put it where the rescue can read it and give image.path"


def mebibytes(count: int) -> str:
    """Bytes as people read them."""
    return f"{count // (1024 * 1024)} MiB"


def check_room(wanted: int, available: int, what: str, way_out: str = IMAGE_WAY_OUT) -> None:
    """Refuse what does not fit into the memory of the rescue (bytes)."""
    if wanted + RESERVE > available:
        raise Refused(
            f"{what}: it needs {mebibytes(wanted)} of the rescue's memory, and {mebibytes(available)} are free of "
            f"which {mebibytes(RESERVE)} stay with the rescue; {way_out}",
            permanent=True,
        )


def free_memory(folder: str) -> int:
    """Bytes that a file in ``folder`` may take: free memory, and what the file system allows if it says so."""
    with open("/proc/meminfo") as lines:
        found = re.search(r"^MemAvailable:\s+([0-9]+) kB", lines.read(), re.MULTILINE)
    memory = (whole_number(found.group(1)) or 0) * 1024 if found else 0
    status = os.statvfs(folder)
    return min(memory, status.f_bavail * status.f_frsize) if status.f_blocks else memory


def digest_of(path: str, tick: Callable[[int], None] = lambda count: None) -> str:
    """``sha256:…`` of a file; ``tick`` gets the number of bytes read so far."""
    digest, count = hashlib.sha256(), 0
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            digest.update(chunk)
            count += len(chunk)
            tick(count)
    return "sha256:" + digest.hexdigest()


def verify(found: str, wanted: str, what: str) -> None:
    """Refuse content whose digest is not the wanted one."""
    if wanted and found != wanted:
        raise Refused(
            f"{what}: its digest is {found}, expected {wanted}; nothing was written to a disk. Correct image.digest, "
            "or find out who changed the file",
            permanent=True,
        )


#: How a file begins that was packed so, its name, and the endings of a name that say it.
_PACKED: tuple[tuple[bytes, str, tuple[str, ...]], ...] = (
    (b"\x1f\x8b", "gzip", (".tar.gz", ".tgz")),
    (b"BZh", "bzip2", (".tar.bz", ".tar.bz2", ".tbz", ".tbz2")),
    (b"\xfd7zXZ\x00", "xz", (".tar.xz", ".txz")),
    (b"\x28\xb5\x2f\xfd", "zstd", (".tar.zst",)),
)


def check_packing(path: str, name: str) -> None:
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
            f"image.name {name}: the image is packed by {packed}; let the name end with {' or '.join(endings)}",
            permanent=True,
        )


class Download(web.Download):
    """One file over HTTP, into a file that is only named when it is complete and right."""

    can_restart = True
    #: A link that breaks after every few megabytes brings the image, too.
    most_connections = 10_000
    given_up = "given up after %(tries)d tries in a row: %(reason)s"

    def __init__(
        self,
        url: str,
        target: str,
        shown: str,
        tick: Callable[[int, int | None], None] = lambda done, size: None,
        pause: float = 2.0,
    ) -> None:
        location, login = _split_login(url)
        super().__init__(shown, location, private={"Authorization": login}, pause=pause)
        self._target, self._tick = target, tick
        self._part = target + ".part"
        self._file: BinaryIO | None = None

    def fetch(self, wanted: str = "") -> str:
        with open(self._part, "wb") as self._file:
            for chunk in self.chunks():
                if self.size is None:
                    self._check_room(len(chunk))
                self._file.write(chunk)
                self._tick(self.received, self.size)
        found = digest_of(self._part)
        if wanted and found != wanted:
            os.unlink(self._part)
        verify(found, wanted, self.shown)
        os.replace(self._part, self._target)
        return found

    def refused(self, text: str, final: bool = False, status: int = 0) -> Exception:
        return Refused(f"{self.shown}: {text}", permanent=final)

    def ready(self, coming: int | None) -> None:
        if coming is not None:
            self._check_room(coming)

    def restart(self) -> None:
        super().restart()
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    def _check_room(self, wanted: int) -> None:
        check_room(wanted, free_memory(os.path.dirname(self._target)), self.shown)


def _split_login(url: str) -> tuple[str, str]:
    try:
        return web.split_login(url)
    except ValueError:
        # its text may hold a piece of the login
        raise Refused("image.url: its address or its port is none", permanent=True) from None
