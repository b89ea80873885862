# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One machine as seen from itself: files below a root, and the programs that are installed."""

from __future__ import annotations

import hashlib
import os
import stat

from . import process

_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin", "/opt/cni/bin")
_CHUNK = 1 << 20


class Host:
    """``root`` and ``run_all`` (see process.run_all) differ from the real ones only in tests."""

    def __init__(self, root="/", run_all=process.run_all):
        self.root, self._run_all = root, run_all

    def path(self, path):
        """Where an absolute path of the machine really lies."""
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def find(self, name):
        """Where a program lies, by its name or its absolute path; None when it is not there."""
        for path in [name] if name.startswith("/") else [os.path.join(place, name) for place in _PLACES]:
            real = self.path(path)
            if os.path.isfile(real) and os.access(real, os.X_OK):
                return path
        return None

    def run(self, argv, seconds=30, stdin=None):
        """Run one program by name; :class:`process.Done`, exit code 127 when it is not there."""
        return self.run_all([(argv, seconds, stdin)])[0]

    def run_all(self, commands):
        """Run several (argv, seconds, stdin) at the same time."""
        return self._run_all([([self.find(argv[0]) or argv[0]] + argv[1:], *more) for argv, *more in commands])

    def data(self, path):
        """Content as bytes; None when there is no readable file."""
        try:
            with self._open(path) as file:
                return file.read()
        except OSError:
            return None

    def _open(self, path):
        """Open a regular file for reading; a pipe or a device would let us wait for ever."""
        fd = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError("%s is not a regular file" % path)
        return os.fdopen(fd, "rb")

    def text(self, path):
        """Content as text; None when there is no readable file."""
        data = self.data(path)
        return None if data is None else data.decode("utf-8", "replace")

    def exists(self, path):
        """Whether there is anything, a dangling link included."""
        return os.path.lexists(self.path(path))

    def is_dir(self, path):
        """Whether there is a directory, or a link to one."""
        return os.path.isdir(self.path(path))

    def status(self, path):
        """os.lstat() of it; None when there is nothing."""
        try:
            return os.lstat(self.path(path))
        except OSError:
            return None

    def sha256(self, path):
        """SHA-256 of a regular file, links followed, as hexadecimal digits; None when it cannot be read."""
        digest = hashlib.sha256()
        try:
            with self._open(path) as file:
                for chunk in iter(lambda: file.read(_CHUNK), b""):
                    digest.update(chunk)
        except OSError:
            return None
        return digest.hexdigest()

    def names(self, path):
        """Sorted names in a directory; empty when there is none."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    @property
    def container(self):
        """Whether this is a container, which shares its kernel with others."""
        if self.exists("/run/systemd/container") or self.exists("/.dockerenv") or self.exists("/run/.containerenv"):
            return True
        return any(entry.startswith(b"container=") for entry in (self.data("/proc/1/environ") or b"").split(b"\0"))

    @property
    def systemd_runs(self):
        """Whether systemd is the first process, and services can be started."""
        return self.is_dir("/run/systemd/system")
