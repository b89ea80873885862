# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What of the file tree is this machine's own: not what lies behind a link, and not what is mounted in it."""

from __future__ import annotations

import os
import stat

from ..._common import mounts
from ..machine.host import Host
from . import removable


class Reach:
    """``left`` lists what was found and stays, for people. Raises OSError when the mounts cannot be read."""

    def __init__(self, host: Host) -> None:
        self._host = host
        found = mounts.read()
        self._kinds = {mount.id: mount.kind for mount in found}
        self._points = {mount.point for mount in found}
        self._folders: dict[str, tuple[str, str | None]] = {}
        self.left: list[str] = []

    def takes(self, path: str) -> bool:
        """Whether a path, itself not followed, may be changed or removed with all that is in it."""
        folder, name = os.path.split(path)
        real, why = self._folder(folder)
        if why is None:
            point = os.path.join(real, name)
            inside = sorted(found for found in self._points if found == point or found.startswith(point + "/"))
            why = "%s is mounted" % self._machine(inside[0]) if inside else None
        if why is not None:
            self._leave(path, why)
        return why is None

    def takes_folder(self, path: str) -> bool:
        """Whether what lies in a folder may be changed."""
        why = self._folder(path)[1]
        if why is not None:
            self._leave(path, why)
        return why is None

    def _leave(self, path: str, why: str) -> None:
        text = "%s is left as it is: %s" % (path, why)
        if text not in self.left:
            self.left.append(text)

    def _folder(self, folder: str) -> tuple[str, str | None]:
        """Where a folder really lies, and why its files are not ours to change (None when they are)."""
        if folder not in self._folders:
            self._folders[folder] = self._look(folder)
        return self._folders[folder]

    def _look(self, folder: str) -> tuple[str, str | None]:
        if folder == "/":
            return os.path.realpath(self._host.path("/")), None
        above, name = os.path.split(folder)
        parent, why = self._folder(above)
        if why is not None:
            return parent, why
        real = os.path.join(parent, name)
        try:
            status = os.lstat(real)
        except OSError:
            return real, None  # what is not there is not changed
        if stat.S_ISLNK(status.st_mode):
            if folder not in removable.PLACES:
                return real, "%s is a link" % folder
            return self._folder(self._machine(os.path.realpath(real)))
        mount = mounts.id_at(real)
        if mount != mounts.id_at(parent):
            kind = self._kinds.get(mount, "unknown")
            if folder not in removable.PLACES or kind not in removable.LOCAL:
                return real, "%s is a mounted file system (%s)" % (folder, kind)
        return real, None

    def _machine(self, real: str) -> str:
        """The machine's name of a path."""
        root = os.path.realpath(self._host.path("/"))
        return real if root == "/" else "/" + os.path.relpath(real, root)
