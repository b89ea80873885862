# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of overlay descriptors that others write: each is one image, served while its base is the same."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped, json_value
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Base, identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import (
    DESCRIPTOR_SUFFIX,
    DESCRIPTOR_VERSION,
    Overlay,
    overlay_of,
)

from .answers import Registry
from .watched import LOG, Changes, Problems, read, scan, state

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}\Z")
_HOST = re.compile(r"[^\x00-\x1f\x7f]{0,253}\Z")
_MOST = 96 * 1024 * 1024  # an image with a larger embed area has its Ignition in here


@dataclass
class _Known:
    """One descriptor that could be read."""

    __slots__ = ("base", "host", "name", "problem")
    name: str
    host: str
    base: Base
    problem: str | None  # why it is not served, "": it is, None: not tried yet


class DescriptorFolder:
    """The images of a folder."""

    def __init__(
        self, registry: Registry, folder: str, path_of: Callable[[str], str], problems: Problems,
        owned: Callable[[str], bool] = lambda name: False,
    ) -> None:  # fmt: skip
        """``path_of``: where an image with a name is registered; ``owned``: names that hosts of another folder have."""
        self._registry, self._folder, self._path_of, self._problems = registry, folder, path_of, problems
        self._owned = owned
        self._changes = Changes()
        self._known: dict[str, _Known] = {}
        self._withheld: set[str] = set()
        self._bases: dict[Base, Base] = {}

    def refresh(self) -> None:
        """Serve what is new, take away what is gone or does not fit its base any more."""
        try:
            found = {name: one for name, one in scan(self._folder).items() if name.endswith(DESCRIPTOR_SUFFIX)}
        except OSError as error:
            self._problems.report(self._folder, f"the folder cannot be read: {error.strerror}; its images stay")
            return
        bad: dict[str, str] = {}
        changed, gone = self._changes.update({name: state([(name, one)]) for name, one in found.items()})
        before = {known.name for known in self._known.values()}
        for file in gone:
            self._known.pop(file, None)
            self._problems.forget(self._place(file))
        for file in changed:
            self._known.pop(file, None)
            try:
                name, host, overlay, _created = self._load(file)
            except ImageError as error:
                bad[file] = str(error)
                continue
            self._known[file] = _Known(name, host, self._bases.setdefault(overlay.base, overlay.base), None)
        for name in before - {known.name for known in self._known.values()}:
            self._registry.remove(self._path_of(name))
            self._withheld.discard(self._path_of(name))
            LOG.info("%s: gone", escaped(name))
        self._settle()
        for file, problem in bad.items():
            self._problems.report(self._place(file), problem)
        self._problems.report(self._folder, "")

    def withheld(self, path: str) -> bool:
        """Whether a path is one of a descriptor that cannot be served now."""
        return path in self._withheld

    def names(self) -> list[str]:
        """The images that are served."""
        return sorted(known.name for known in list(self._known.values()) if known.problem == "")

    @property
    def failed(self) -> int:
        """How many descriptors are not served."""
        return sum(1 for known in list(self._known.values()) if known.problem)

    def _settle(self) -> None:
        """Serve each that can be served now, and no other."""
        files: dict[str, list[str]] = {}
        for file, known in self._known.items():
            files.setdefault(known.name, []).append(file)
        used = {known.base for known in self._known.values()}
        self._bases = {base: base for base in self._bases if base in used}
        good = {base: base.unchanged() for base in used}
        for file, known in self._known.items():
            problem = self._conflict(known, files[known.name])
            if not problem and not good[known.base]:
                problem = f"its base {known.base.path} is another one by now, or gone; build the image again"
            if problem == known.problem:
                continue
            if not problem:
                problem = self._serve(file)
            if problem and not self._owned(known.name):
                self._registry.remove(self._path_of(known.name))
                self._withheld.add(self._path_of(known.name))
            known.problem = problem
            self._problems.report(self._place(file), problem)

    def _conflict(self, known: _Known, files: list[str]) -> str:
        if self._owned(known.name):
            return f"{known.name} is already the image of a host in the folder of NMState documents"
        if len(files) > 1:
            return f"{' and '.join(escaped(file) for file in sorted(files))} would share the name {known.name}"
        return ""

    def _serve(self, file: str) -> str:
        """Publish it; what is wrong with it, "" when it is served."""
        try:
            name, host, overlay, created = self._load(file)
            if identify(overlay.base.path) != overlay.base:
                raise ImageError(f"its base {overlay.base.path} is not the one it was built over")
            path = self._path_of(name)
            self._registry.put(path, host or name, overlay, created)
            self._withheld.discard(path)
        except (ImageError, OSError) as error:
            return str(error)
        return ""

    def _load(self, file: str) -> tuple[str, str, Overlay, int]:
        """Name, host, image and date in the file."""
        try:
            data = json_value(read(self._place(file), _MOST))
        except ImageError:
            raise
        except ValueError as error:
            raise ImageError(f"it is no JSON: {error}") from error
        if not isinstance(data, dict) or data.get("kubenode_image") != DESCRIPTOR_VERSION:
            raise ImageError(f"it is no descriptor of version {DESCRIPTOR_VERSION} (kubenode_image)")
        name, host, created = _text(data, "name", _NAME), _text(data, "host", _HOST), data.get("created")
        if not isinstance(created, int) or isinstance(created, bool) or not 0 <= created < 1 << 33:
            raise ImageError(f"created: {created!r:.40} is no number of seconds since 1970")
        return name, host, overlay_of(data), created

    def _place(self, file: str) -> str:
        return os.path.join(self._folder, file)


def _text(data: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    found = data.get(key)
    if not isinstance(found, str) or not pattern.match(found):
        raise ImageError(f"{key}: {found!r:.80} cannot be used")
    return found
