# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Base images by architecture, found by name as the peer finds them, and read once for each state of a file."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, Union

from . import cpio, iso
from .base_file import DIGESTS, Base, Signature, identify, signature_of
from .image_error import ImageError
from .iso import IGNITION, NETWORK, profile_name
from .overlay import Overlay, Patch, Zeros, whole

ISO, INITRAMFS = "iso", "initramfs"
KINDS = (ISO, INITRAMFS)
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}  # what Go calls them
_HOST = ""  # the files that are configured, of all architectures
_CACHED = 1.0  # seconds a look at the folders is good for
_SETTLED = 2.0  # seconds without a write after which a file that is new here counts as whole
Source = Union[iso.Iso, Overlay]
_Image = TypeVar("_Image")


class NotReady(ImageError):
    """Nothing is wrong with what was asked for: a base is missing or is just being written. A retry helps."""


class Bases:
    """The bases of a server; may be asked from any thread."""

    def __init__(
        self, iso_path: str, initramfs_path: str, shared_dir: str = "", own_arch: str = "", *, later: bool = False
    ) -> None:
        """Paths as in DEPLOY_ISO, DEPLOY_INITRD and IMAGE_SHARED_DIR; an empty one: there is none of that kind.

        ``later``: who asks for a base does not wait until its digest is computed; `settle` computes it.
        """
        self._paths = {ISO: iso_path, INITRAMFS: initramfs_path}
        self._shared_dir = shared_dir
        self.own_arch = known_arch(own_arch or platform.machine())
        self._lock = threading.RLock()
        self._found: dict[str, dict[str, str]] = {}
        self._seen: set[tuple[str, str]] = set()  # kind and architecture of every base that was ever there
        self._looked = float("-inf")
        self._isos: dict[str, tuple[Signature, iso.Iso]] = {}
        self._initramfs: dict[str, tuple[Signature, Overlay]] = {}
        self._begun = time.time()
        self._later = later
        self._waiting: set[str] = set()  # bases that were asked for and whose digests are not known

    def find(self, arch: str, kind: str) -> str | None:
        """The path of a base; an empty architecture is that of the files that are configured."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= _CACHED:
                self._found = {kind: dict(self._look(kind)) for kind in KINDS}
                self._seen.update((kind, arch) for kind, found in self._found.items() for arch in found)
                self._looked = now
            found = self._found[kind]
        wanted = known_arch(arch)
        if wanted and (wanted in found or wanted != self.own_arch):
            return found.get(wanted)
        return found.get(_HOST)

    def given(self, kind: str) -> bool:
        """Whether bases of this kind are configured, be they there or not."""
        return bool(self._paths[kind])

    def supports(self, arch: str) -> bool:
        """Whether an ISO and an initramfs of it are configured or were ever there, be they there now or not."""
        wanted = known_arch(arch) or self.own_arch
        return all(
            self.find(arch, kind) is not None
            or (wanted == self.own_arch and self.given(kind))
            or (kind, wanted) in self._seen
            for kind in KINDS
        )

    def path(self, arch: str, kind: str) -> str:
        """The path of a base; NotReady when there is none."""
        found = self.find(arch, kind)
        if found is None:
            where, of_arch = self._paths[kind] or "is not set", f"architecture {arch or self.own_arch}"
            variable = "DEPLOY_ISO" if kind == ISO else "DEPLOY_INITRD"
            raise NotReady(f"base_{kind} ({variable}) {where}: there is no file for {of_arch} there or beside it")
        return found

    def state(self, arch: str) -> tuple[str, ...]:
        """Another one as soon as what is made of these bases has to be made again: identities, or what is wrong."""
        return tuple(self._state(arch, kind) for kind in KINDS)

    def away(self, arch: str) -> str:
        """What keeps these bases from being used now; "" when nothing does."""
        found = []
        for kind in KINDS:
            try:
                self.source(arch, kind)
            except NotReady as error:
                found.append(str(error))
        return "; ".join(found)

    def settle(self, *archs: str) -> None:
        """Compute what others wait for, and would for these architectures; for a thread that may take long."""
        with self._lock:
            found = [self.find(arch, kind) for arch in archs for kind in KINDS]
            waiting = {*self._waiting, *(path for path in found if path is not None)}
            self._waiting.clear()
        for path in sorted(waiting):
            if not DIGESTS.known(path):
                with contextlib.suppress(ImageError):  # `iso` and `initramfs` raise it again
                    identify(path)

    def iso(self, path: str) -> iso.Iso:
        """A base ISO, read again only when the file is another one."""
        return self._current(self._isos, path, iso.inspect)

    def initramfs(self, path: str) -> Overlay:
        """A base initramfs, read again only when the file is another one."""
        return self._current(self._initramfs, path, read_initramfs)

    def source(self, arch: str, kind: str) -> Source:
        """The base of this kind for an architecture; NotReady when there is none now."""
        path = self.path(arch, kind)
        return self.iso(path) if kind == ISO else self.initramfs(path)

    def _current(
        self, kept: dict[str, tuple[Signature, _Image]], path: str, inspect: Callable[[str], _Image]
    ) -> _Image:
        with self._lock:
            known = kept.get(path)
            signature = self._signature(path, None if known is None else known[0])
            if known is None or known[0] != signature:
                kept.pop(path, None)
                known = kept[path] = (signature, self._read(inspect, path))
            return known[1]

    def _read(self, inspect: Callable[[str], _Image], path: str) -> _Image:
        """NotReady for a base that cannot be read: the host's inputs are good, and a good base may take its place."""
        if self._later and not DIGESTS.known(path):
            self._waiting.add(path)
            raise NotReady(f"base {path} is being read for the first time")
        try:
            return inspect(path)
        except ImageError as error:
            raise NotReady(str(error)) from error

    def _state(self, arch: str, kind: str) -> str:
        try:
            return base_of(self.source(arch, kind)).identity
        except NotReady as error:
            return str(error)

    def _look(self, kind: str) -> Iterator[tuple[str, str]]:
        """Architecture and path of every base of a kind; the first folder that has one is taken."""
        configured = self._paths[kind]
        if not configured:
            return
        stem, suffix = os.path.splitext(os.path.basename(configured))
        pattern = re.compile(f"{re.escape(stem)}[_.]([A-Za-z0-9_]+){re.escape(suffix)}")
        seen = set()
        for folder in self._folders():
            for name in _names(folder):
                match = pattern.fullmatch(name)
                path = os.path.join(folder, name)
                arch = known_arch(match.group(1)) if match else ""
                if match and arch not in seen and not _same(path, configured) and _is_image(path):
                    seen.add(arch)
                    yield arch, path
        if _is_image(configured):
            yield _HOST, configured

    def _folders(self) -> list[str]:
        if self._shared_dir:
            return [self._shared_dir]
        folders = [os.path.dirname(path) or "." for path in self._paths.values() if path]
        return list(dict.fromkeys(folders))

    def _signature(self, path: str, known: Signature | None) -> Signature:
        """What the file is now; NotReady when it is not there, or is new and still being written."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise NotReady(f"base {path} cannot be read: {error.strerror or error}") from error
        signature = signature_of(found)
        if not stat.S_ISREG(found.st_mode):  # a block device: its times are of its node
            return signature._replace(mtime_ns=0, ctime_ns=0)
        if known == signature:
            return signature
        # ctime: when it was last written to, also when a copy was given another date
        if found.st_ctime > self._begun and 0 <= time.time() - found.st_ctime < _SETTLED:
            raise NotReady(f"base {path} is being written")
        return signature


def base_of(source: Source) -> Base:
    """The file behind a source."""
    return source.overlay.base if isinstance(source, iso.Iso) else source.base


def known_arch(arch: str) -> str:
    """The architecture as the kernel calls it."""
    lower = arch.strip().lower()
    return _ALIASES.get(lower, lower)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # the peer goes on, too; what is missing is said when it is asked for
        return []


def _is_image(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def _same(path: str, other: str) -> bool:
    return os.path.abspath(path) == os.path.abspath(other)


def read_initramfs(path: str) -> Overlay:
    """A base initramfs (a file or a block device)."""
    return whole(identify(path))


def customise_initramfs(
    base: Overlay,
    ignition: bytes | None,
    network: Mapping[str, str] | None = None,
    *,
    pack: Callable[[Mapping[str, bytes], str], bytes] = cpio.archive,
) -> Overlay:
    """The initramfs followed by an archive; both begin and end at multiples of 4, so that a plain one may follow."""
    members: dict[str, bytes] = {} if ignition is None else {IGNITION: ignition}
    for name, text in (network or {}).items():
        members[f"{NETWORK}/{profile_name(name)}"] = text.encode("utf-8")
    if not members:
        return base
    archive = pack(members, "gzip")
    append: list[Patch] = [Zeros(cpio.aligned(base.size)), archive, Zeros(cpio.aligned(len(archive)))]
    return base.patched([], append)
