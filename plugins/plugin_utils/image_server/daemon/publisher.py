# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts become images behind URLs: equal inputs keep URL and image, other inputs make another image."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import without_login
from ansible_collections.kubenode.provision.plugins.module_utils._common.safe_files import replacing
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import hosts
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import (
    INITRAMFS,
    ISO,
    Bases,
    NotReady,
    Source,
    base_of,
)
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.iso import Iso, boot_file
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.conversion import Run
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.urls import UrlBuilder, public_path

from .answers import Registry
from .watched import Problems

SUFFIXES = {ISO: ".iso", INITRAMFS: ".initramfs"}
BOOT = ("kernel", "rootfs")


@dataclass(frozen=True)
class Outcome:
    """What came of one host: a URL for each image that is served, an error for each that is not."""

    urls: Mapping[str, str]
    problems: Mapping[str, ImageError]
    warnings: tuple[str, ...] = ()


@dataclass
class _Entry:
    """What is remembered of a host: enough to see that nothing changed."""

    __slots__ = ("digest", "paths", "warnings")
    digest: bytes  # of its inputs
    paths: Mapping[str, str]  # format → registered path
    warnings: tuple[str, ...]


class Publisher:
    """Publishes hosts in a registry; may be called from any thread."""

    def __init__(
        self, registry: Registry, bases: Bases, inputs: Callable[[], AgentInputs], secret: bytes, publish_addr: str,
        signed: int = 0, *, path_of: Callable[[str, str], str] | None = None, run: Run | None = None,
        gone: Callable[[str], None] = lambda host: None, secrets: bool = True,
    ) -> None:  # fmt: skip
        """``inputs`` gives the same object as long as nothing changed; ``signed``: seconds a URL is good for at least.

        ``path_of``: from key and suffix to a path, when keys are names; ``gone`` is called with each host whose images
        went away; ``secrets``: whether an image may hold any, or else it is refused.
        """
        self._registry, self._bases, self._inputs = registry, bases, inputs
        self._urls = UrlBuilder(address(publish_addr), secret, signed)
        self._run, self._gone, self._secrets = run, gone, secrets
        self._path_of = path_of or (lambda key, suffix: public_path(secret, key, suffix))
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._withheld: set[str] = set()
        self._boot: dict[str, Mapping[str, str]] = {}
        self._known_inputs: tuple[AgentInputs | None, bytes] = (None, b"")

    def publish(
        self, key: str, host: HostInputs, arch: str, formats: Sequence[str], *, modified: float | None = None,
        label: str | None = None,
    ) -> Mapping[str, str]:  # fmt: skip
        """The URL of each format; the first error is raised, and that image is not served any more.

        ``key`` names the host for ever; ``modified``: when the newest of its inputs was written (seconds since 1970,
        None: now); ``label``: its name in logs and metrics. NotReady: the same may succeed later.
        """
        outcome = self.offer(key, host, arch, formats, modified=modified, label=label)
        for problem in outcome.problems.values():
            raise problem
        return outcome.urls

    def offer(
        self, key: str, host: HostInputs, arch: str, formats: Sequence[str], *, modified: float | None = None,
        label: str | None = None, agent: Mapping[str, Any] | None = None, enlarge: bool = False,
    ) -> Outcome:  # fmt: skip
        """The same with what came of each format; ``agent``: values of AgentInputs that are this host's own."""
        with self._lock:
            entry = self._entries.get(key)
            paths = {kind: self.path(key, kind) for kind in formats}
            problems: dict[str, ImageError] = {}
            try:
                inputs = self._inputs_of(host, agent or {})
                digest = self._digest(inputs, (host, arch, enlarge))
            except ImageError as error:
                self.withhold(key, formats)
                return Outcome({}, dict.fromkeys(formats, error))
            same = entry is not None and entry.digest == digest
            warnings = entry.warnings if same and entry is not None else ()
            for path in set(entry.paths.values() if entry else ()) - set(paths.values()):
                self._registry.remove(path)
                self._withheld.discard(path)
            self._entries[key] = _Entry(digest, paths, warnings)
            made: hosts.HostConfig | None = None
            for kind, path in paths.items():
                try:
                    source = self._bases.source(arch, kind)
                    if same and self._is_made(path, source):
                        continue
                    made = made or self._build(inputs, host)
                    if isinstance(source, Iso):
                        overlay = hosts.iso_overlay(source, made, host, enlarge=enlarge)
                    else:
                        overlay = hosts.initramfs_overlay(source, made, host)
                    self._put(path, label or host.name, overlay, time.time() if modified is None else modified)
                except ImageError as error:
                    image = self._registry.get(path)
                    if same and isinstance(error, NotReady) and image and image.file.intact(time.monotonic()):
                        continue  # what is served is what is wanted, over the base that was there
                    self._registry.remove(path)
                    self._withheld.add(path)
                    problems[kind] = error
            if made is not None:
                warnings = self._entries[key].warnings = made.warnings
            return Outcome(
                {kind: self._urls.of(path) for kind, path in paths.items() if kind not in problems}, problems, warnings
            )

    def boot_files(self, arch: str) -> Mapping[str, str]:
        """URLs of the kernel and the root file system that are in the base ISO; none when it has not got both."""
        with self._lock:
            try:
                base = self._bases.iso(self._bases.path(arch, ISO))
                parts = {what: boot_file(base, what) for what in BOOT}
                paths = {what: self._path_of(_boot_key(arch or self._bases.own_arch), "." + what) for what in BOOT}
                for what, overlay in parts.items():
                    self._put(paths[what], "boot files", overlay, 0.0)
            except ImageError:
                return {}
            self._boot[arch] = paths
            return {what: self._urls.of(path) for what, path in paths.items()}

    def discard(self, key: str) -> None:
        """Serve a host no longer; readers that have begun go on."""
        with self._lock:
            entry = self._entries.pop(key, None)
            found = {path: self._registry.get(path) for path in (entry.paths.values() if entry else ())}
            for path, image in found.items():
                self._registry.remove(path)
                self._withheld.discard(path)
                if image is not None:
                    self._gone(image.host)

    def withhold(self, key: str, formats: Sequence[str]) -> None:
        """A host is known and its images cannot be made: requests for them get 503 until they can."""
        with self._lock:
            entry = self._entries.get(key)
            paths = {kind: self.path(key, kind) for kind in formats}
            for path in {*paths.values(), *(entry.paths.values() if entry else ())}:
                self._registry.remove(path)
                self._withheld.discard(path)
            self._withheld.update(paths.values())
            self._entries[key] = _Entry(b"", paths, ())

    def withheld(self, path: str) -> bool:
        """Whether a path is one of a host whose image is not there now."""
        return path in self._withheld

    def table(self) -> Mapping[str, str]:
        """Key and suffix of everything that is served, and its URL."""
        with self._lock:
            paths = {
                key + SUFFIXES[kind]: path for key, one in self._entries.items() for kind, path in one.paths.items()
            }
            for arch, found in self._boot.items():
                paths.update(
                    {_boot_key(arch or self._bases.own_arch) + "." + what: path for what, path in found.items()}
                )
            return {name: self._urls.of(path) for name, path in sorted(paths.items()) if self._registry.get(path)}

    def path(self, key: str, kind: str) -> str:
        """Where an image is registered."""
        return self._path_of(key, SUFFIXES[kind])

    def _build(self, inputs: AgentInputs | None, host: HostInputs) -> hosts.HostConfig:
        made = hosts.build(inputs, host, run=self._run)
        found = hosts.secret_in(inputs, host, made.profiles)
        if found and not self._secrets:
            raise ImageError(hosts.GUESSED % found)
        return made

    def _is_made(self, path: str, source: Source) -> bool:
        image = self._registry.get(path)
        return image is not None and image.overlay.base == base_of(source)

    def _put(self, path: str, label: str, overlay: Overlay, modified: float) -> None:
        try:
            self._registry.put(path, label, overlay, max(modified, overlay.base.mtime_ns / 1e9))
        except (ImageError, OSError) as error:  # the base went away, or was written to, since it was looked at
            raise NotReady(f"base {overlay.base.path} is being replaced: {error}") from error
        self._withheld.discard(path)

    def _inputs_of(self, host: HostInputs, agent: Mapping[str, Any]) -> AgentInputs | None:
        if host.ignition is not None:
            return None
        inputs = self._inputs()
        return replace(inputs, **agent) if agent else inputs

    def _digest(self, inputs: AgentInputs | None, own: tuple[HostInputs, str, bool]) -> bytes:
        """Another one for other inputs of a host."""
        if inputs is not self._known_inputs[0]:
            self._known_inputs = (inputs, _digest(repr(inputs)))
        host, arch, enlarge = own
        values = [getattr(host, one.name) for one in dataclasses.fields(host)]
        return _digest(repr((self._known_inputs[1], values, arch, enlarge)))


def address(text: str) -> str:
    """The beginning of every URL."""
    shown = f"images-publish-addr {without_login(text)!r}"
    try:
        parts = urllib.parse.urlsplit(text)
        parts.port  # noqa: B018 - asks whether it is one
    except ValueError as error:
        why = "" if "@" in text else f": {error}"  # which may repeat a part of a login
        raise ImageError(f"{shown} is no URL{why}") from error
    if (
        parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None
        or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", text)
    ):  # fmt: skip
        raise ImageError(f"{shown} is no address for images; give one such as http://192.0.2.1:8084")
    return text.rstrip("/")


def _boot_key(arch: str) -> str:
    return f"boot-{arch}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class UrlsFile:
    """Written when it changes, whole, for its owner only: unguessable URLs are secrets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._state: tuple[int, int] | None = None

    def write(self, changes: int, signed: int, urls: Callable[[], Mapping[str, str]], problems: Problems) -> None:
        """Write it unless nothing changed; ``signed``: seconds after which signed URLs become others."""
        state = (changes, int(time.time()) // signed if signed else 0)
        if state == self._state:
            return
        text = json.dumps(urls(), indent=2, sort_keys=True) + "\n"
        try:
            with replacing(self._path) as (file, _draft):
                file.write(text.encode("utf-8"))
        except OSError as error:
            problems.report("urls-file", f"{self._path} cannot be written: {error.strerror or error}")
            return
        self._state = state
        problems.report("urls-file", "")
