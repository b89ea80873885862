# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A machine: its files, replaced as a whole or not at all, programs that run on it, and the restarts it still needs.

Names and paths are checked, so that none is taken for an option, a pattern or a second line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, List, NamedTuple, Optional, Tuple

from .._common.text import has_control, json_object

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
    with ThreadPoolExecutor(max_workers=max(1, len(commands))) as pool:
        return list(pool.map(lambda command: _one(*command), commands))


def _one(argv: list[str], seconds: float, given: str | None) -> Done:
    environment = dict(os.environ, LANG="C", LC_ALL="C", LANGUAGE="C", DEBIAN_FRONTEND="noninteractive")
    # files in memory: a daemon that a program leaves behind would keep pipes open for ever
    streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        if given is not None:
            os.write(streams[0], given.encode("utf-8", "surrogateescape"))
            os.lseek(streams[0], 0, os.SEEK_SET)
        return _run(argv, seconds, environment, streams)
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
        return Done(MISSING, "", f"{argv[0]} cannot be run ({error.strerror})")
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
        return Done(LATE, _text(streams[1]), f"{argv[0]} did not end within {int(seconds)} s")
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
            raise OSError(f"{path} is not a regular file")
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


#: How the temporary neighbour of a file begins; a leftover of a power cut is recognised by it.
TEMPORARY_PREFIX = ".kubenode-"


def missing_parents(host: Host, path: str) -> list[str]:
    """The directories above a path that are not there, outermost first."""
    missing, folder = [], os.path.dirname(path)
    while folder not in ("", "/") and not host.is_dir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing[::-1]


def make_parents(host: Host, path: str) -> list[str]:
    """Make the directories above a path, mode 0755; returns those that were made, outermost first."""
    made = []
    for folder in missing_parents(host, path):
        try:
            os.mkdir(host.path(folder), 0o755)
        except FileExistsError:
            # artifacts are installed in several threads; what is no directory stays in the way
            if not host.is_dir(folder):
                raise
        else:
            os.chmod(host.path(folder), 0o755)
            made.append(folder)
    return made


def write_file(
    host: Host,
    path: str,
    data: bytes,
    mode: int,
    uid: int | None = None,
    gid: int | None = None,
    check: Callable[[str], None] | None = None,
) -> None:
    """Replace a file at once; ``check(temporary path)`` may raise before that. Raises OSError."""
    make_parents(host, path)
    real = host.path(path)
    fd, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=os.path.dirname(real))
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if uid is not None or gid is not None:
                os.fchown(fd, -1 if uid is None else uid, -1 if gid is None else gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
        if check:
            check(temporary)
        os.rename(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(real))


def write_link(host: Host, path: str, target: str) -> None:
    """Replace a file or link by a symbolic link at once. Raises OSError."""
    make_parents(host, path)
    real = host.path(path)
    folder = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=os.path.dirname(real))
    try:
        temporary = os.path.join(folder, "link")
        os.symlink(target, temporary)
        os.rename(temporary, real)
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    sync_folder(os.path.dirname(real))


def sync_folder(folder: str) -> None:
    """Make a rename in it survive a power cut, where the file system can do that."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def label(host: Host, paths: Iterable[str]) -> Done | None:
    """Give new files the SELinux label that the policy has for them; what came of that, None where there are none."""
    if host.text("/sys/fs/selinux/enforce") is None or not host.find("restorecon"):
        return None
    return host.run(["restorecon", "--"] + [host.path(path) for path in paths], 60)


PENDING_FILE = "/run/kubenode/pending.json"
#: The entry for a `systemctl daemon-reload`.
RELOAD = "daemon-reload"


class Pending:
    """Changed ids, each with the units that were notified: ``{"id": ["unit id", …]}``."""

    def __init__(self, host: Host) -> None:
        self._host = host
        read = json_object(host.text(PENDING_FILE)) or {}
        self._notified = {key: list(notified) for key, notified in read.items() if isinstance(notified, list)}

    def ids(self, who: str | None = None) -> set[str]:
        """Ids of changes that ``who`` was not notified of."""
        return {key for key, notified in self._notified.items() if who not in notified}

    def add(self, ids: Iterable[str]) -> None:
        """These are about to change."""
        if any(self._notified.get(key) != [] for key in ids):
            self._notified.update((key, []) for key in ids)
            self._save()

    def notified(self, who: str, ids: Iterable[str]) -> None:
        """``who`` has taken over these changes."""
        mine = [key for key in ids if who not in self._notified.get(key, [who])]
        for key in mine:
            self._notified[key].append(who)
        if mine:
            self._save()

    def drop(self, ids: Iterable[str]) -> None:
        """No unit waits for these any more."""
        gone = [key for key in ids if self._notified.pop(key, None) is not None]
        if gone:
            self._save()

    def _save(self) -> None:
        write_file(self._host, PENDING_FILE, json.dumps(self._notified, sort_keys=True).encode("utf-8"), 0o644)


_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:~-]*")
_UNIT = re.compile(r"[A-Za-z0-9:_][A-Za-z0-9:_.\\@-]*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_SYSCTL = re.compile(r"[A-Za-z0-9_-]+(?:[./][A-Za-z0-9_@:-]+)+")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def path_error(path: Any) -> str | None:
    """What is wrong with an absolute path; None when nothing is."""
    if not isinstance(path, str) or not path.startswith("/") or path.startswith("//"):
        return "must be an absolute path"
    if has_control(path):
        return "must not contain control characters"
    if posixpath.normpath(path) != path:
        return f"must be a normalised path ({posixpath.normpath(path)})"
    return "must not be the root directory" if path == "/" else None


def _matcher(pattern: re.Pattern[str], what: str) -> Callable[[Any], str | None]:
    def check(name: Any) -> str | None:
        return None if isinstance(name, str) and pattern.fullmatch(name) else f"is not the name of a {what}"

    return check


package_error = _matcher(_PACKAGE, "package")
unit_error = _matcher(_UNIT, "systemd unit")
module_error = _matcher(_MODULE, "kernel module")
sysctl_error = _matcher(_SYSCTL, "sysctl")
_program_error = _matcher(_PROGRAM, "program")


def program_error(name: Any) -> str | None:
    """What is wrong with a program's name or absolute path; None when nothing is."""
    return path_error(name) if isinstance(name, str) and name.startswith("/") else _program_error(name)
