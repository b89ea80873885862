# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A machine: its files, and programs that run on it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, List, NamedTuple, Optional, Tuple

#: The most bytes that are kept of either stream.
LONGEST_OUTPUT = 4 << 20
#: Exit codes for a program that is not there, and for one that was killed after its time.
MISSING = 127
LATE = 124

#: argv, seconds, stdin
Command = Tuple[List[str], float, Optional[str]]


class Done(NamedTuple):
    """What came of a program: its exit code and its output."""

    code: int
    out: str
    err: str


def run_commands(commands: Sequence[Command]) -> list[Done]:
    """Run (argv, seconds, stdin text or None) at the same time, without a shell; a list of :class:`Done`, in order."""
    threads: list[threading.Thread] = []
    results: list[Any] = [None] * len(commands)
    for index, (argv, seconds, given) in enumerate(commands):
        thread = threading.Thread(target=_one, args=(results, index, argv, seconds, given), daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return results


def _one(results: list[Any], index: int, argv: list[str], seconds: float, given: str | None) -> None:
    environment = dict(os.environ, LANG="C", LC_ALL="C", LANGUAGE="C", DEBIAN_FRONTEND="noninteractive")
    # files in memory: a daemon that a program leaves behind would keep pipes open for ever
    streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        if given is not None:
            os.write(streams[0], given.encode("utf-8", "surrogateescape"))
            os.lseek(streams[0], 0, os.SEEK_SET)
        results[index] = _run(argv, seconds, environment, streams)
    finally:
        for fd in streams:
            os.close(fd)


def _run(argv: list[str], seconds: float, environment: Mapping[str, str], streams: Sequence[int]) -> Done:
    try:
        # AnsibleModule.run_command can run one program at a time only, and cannot limit it.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Done(MISSING, "", "%s cannot be run (%s)" % (argv[0], error.strerror))
    late = threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)

    guard = threading.Timer(seconds, end)
    guard.start()
    try:
        process.wait()
    finally:
        guard.cancel()
    if late.is_set():
        return Done(LATE, _text(streams[1]), "%s did not end within %d s" % (argv[0], seconds))
    return Done(process.returncode, _text(streams[1]), _text(streams[2]))


def _text(fd: int) -> str:
    return os.pread(fd, LONGEST_OUTPUT, 0).decode("utf-8", "replace")


_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin", "/opt/cni/bin")
_CHUNK = 1 << 20


class Host:
    """``root``, and ``run`` in the place of :func:`run_commands`, differ from the real ones only in tests."""

    def __init__(self, root: str = "/", run: Callable[[Sequence[Command]], list[Done]] = run_commands) -> None:
        self.root, self._run_all = root, run

    def path(self, path: str) -> str:
        """Where an absolute path of the machine really lies."""
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def find(self, name: str) -> str | None:
        """Where a program lies, by its name or its absolute path; None when it is not there."""
        for path in [name] if name.startswith("/") else [os.path.join(place, name) for place in _PLACES]:
            real = self.path(path)
            if os.path.isfile(real) and os.access(real, os.X_OK):
                return path
        return None

    def run(self, argv: list[str], seconds: float = 30, stdin: str | None = None) -> Done:
        """Run one program by name; :class:`Done`, exit code 127 when it is not there."""
        return self.run_all([(argv, seconds, stdin)])[0]

    def run_all(self, commands: Iterable[Command]) -> list[Done]:
        """Run several (argv, seconds, stdin) at the same time."""
        return self._run_all(
            [([self.find(argv[0]) or argv[0]] + argv[1:], seconds, given) for argv, seconds, given in commands]
        )

    def data(self, path: str) -> bytes | None:
        """Content as bytes; None when there is no readable file."""
        try:
            with self._open(path) as file:
                return file.read()
        except OSError:
            return None

    def _open(self, path: str) -> BinaryIO:
        """Open a regular file for reading; a pipe or a device would let us wait for ever."""
        fd = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError("%s is not a regular file" % path)
        return os.fdopen(fd, "rb")

    def text(self, path: str) -> str | None:
        """Content as text; None when there is no readable file."""
        data = self.data(path)
        return None if data is None else data.decode("utf-8", "replace")

    def exists(self, path: str) -> bool:
        """Whether there is anything, a dangling link included."""
        return os.path.lexists(self.path(path))

    def is_dir(self, path: str) -> bool:
        """Whether there is a directory, or a link to one."""
        return os.path.isdir(self.path(path))

    def status(self, path: str) -> os.stat_result | None:
        """os.lstat() of it; None when there is nothing."""
        try:
            return os.lstat(self.path(path))
        except OSError:
            return None

    def sha256(self, path: str) -> str | None:
        """SHA-256 of a regular file, links followed, as hexadecimal digits; None when it cannot be read."""
        digest = hashlib.sha256()
        try:
            with self._open(path) as file:
                for chunk in iter(lambda: file.read(_CHUNK), b""):
                    digest.update(chunk)
        except OSError:
            return None
        return digest.hexdigest()

    def names(self, path: str) -> list[str]:
        """Sorted names in a directory; empty when there is none."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    @property
    def container(self) -> bool:
        """Whether this is a container, which shares its kernel with others."""
        if self.exists("/run/systemd/container") or self.exists("/.dockerenv") or self.exists("/run/.containerenv"):
            return True
        return any(entry.startswith(b"container=") for entry in (self.data("/proc/1/environ") or b"").split(b"\0"))

    @property
    def systemd_runs(self) -> bool:
        """Whether systemd is the first process, and services can be started."""
        return self.is_dir("/run/systemd/system")
