# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's half of what runs in a rescue: put the files in place, start the runner or attach to it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pkgutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Callable

from .._common import installed, safe_files
from .._common.text import json_value
from . import protocol

#: Runs a program (``argv``, ``environ_update``) as ``AnsibleModule.run_command`` does: exit code, stdout, stderr.
Run = Callable[..., "tuple[int, str, str]"]


class JobError(Exception):
    """The job can be neither started nor attached to, or a step of it was not done; the text says why and what to do.

    ``begun``: but disks were changed.
    """

    def __init__(self, message: str, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


@dataclass(repr=False)
class Job:
    """What travels from the controller to the machine, as one opaque string (it holds secrets)."""

    command: bytes
    bootstrap: bytes
    arguments: Sequence[str]
    token: str
    limit: int
    rule: str
    runner: str
    #: The installation's id, the disks it writes, and what allows that; the user's word, and the intent as JSON.
    installation: str = ""
    devices: list[str] = field(default_factory=list)
    consent: str = ""
    reinstall: Any = None
    intent: str = ""
    #: What else the program finds below the base: path → content, readable for root alone.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Of a command that was uploaded before, in place of ``command``: ``sha256``, ``size``, the job's ``digest``.
    uploaded: dict[str, Any] = field(default_factory=dict)
    #: Disks to empty before the start, as the look saw them on whose word they may go; whether the image must be
    #: fetchable before.
    empty: list[Any] = field(default_factory=list)
    check_image: bool = True
    #: Whether the program empties disks itself, as installimage does.
    erases: bool = False
    #: Disks that hold nothing, as the look saw them; only if that is so still, the job starts.
    still_empty: list[Any] = field(default_factory=list)

    @property
    def machine(self) -> str:
        """The machine's name, an argument of every job."""
        return self.arguments[1]

    @property
    def digest(self) -> str:
        """The identity of the job; the token, the limit, the rule, the installation and ``files`` are no part of it."""
        return self.uploaded.get("digest") or protocol.job_digest(self.command, self.bootstrap, self.arguments)

    def pack(self) -> str:
        """One line of text for a C(no_log) option."""
        fields = dict(self.__dict__)
        for name in ("command", "bootstrap"):
            fields[name] = _packed(fields[name])
        fields["files"] = {path: _packed(content) for path, content in self.files.items()}
        return base64.b64encode(zlib.compress(json.dumps(fields).encode("utf-8"), 6)).decode("ascii")

    @classmethod
    def unpack(cls, text: str) -> Job:
        """Undo :meth:`pack`."""
        fields = json_value(zlib.decompress(base64.b64decode(text)).decode("utf-8"))
        for name in ("command", "bootstrap"):
            fields[name] = _unpacked(fields[name])
        fields["files"] = {path: _unpacked(text) for path, text in fields["files"].items()}
        return cls(**fields)


def _packed(content: bytes) -> str:
    # Compressed twice, since base64 hides from zlib what repeats.
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def start_or_attach(
    job: Job,
    run: Run,
    base: str = protocol.BASE,
    prepare: Callable[[Run, Job], bool | None] | None = None,
    decide: Callable[[protocol.Status | None], str] | None = None,
) -> tuple[protocol.Status, bool]:
    """Returns ``(status, attached)``; an image command never runs twice at the same time.

    ``run(argv, environ_update={})`` runs a program and returns exit code, stdout and stderr, as
    ``AnsibleModule.run_command`` does. ``prepare(run, job)`` is called right before a start, may raise JobError, and
    returns whether it changed disks.
    ``decide(status)`` takes the place of :func:`protocol.decide`, and may raise it, too.
    """
    with alone(base):
        runner = _Runner(run, base)
        status = runner.status()
        todo = decide(status) if decide else protocol.decide(status, job.digest, job.rule)
        if status is not None and todo == protocol.ATTACH:
            return status, True
        if status is not None and todo == protocol.BUSY:
            raise JobError(
                f"another image command is running in this rescue (job {status.job[:12]}…, since "
                f"{status.seconds:.0f} s; other image URL, command, bootstrap data or devices). Wait for it, or end "
                f"it with: sh {runner.path} stop"
            )
        with _staged(job, base):
            changed = prepare is not None and prepare(run, job)
            try:
                _install(job, base)
                return runner.start(job), False
            except (JobError, protocol.ProtocolError, OSError) as exc:
                raise JobError(str(exc), bool(changed)) from exc


def keep(base: str, name: str, text: str) -> None:
    """Keep a text in the rescue, for later runs."""
    _write(os.path.join(base, name), text.encode("utf-8", "replace"), 0o600)


def installation_in(base: str = protocol.BASE) -> str:
    """The id of the installation that the last command of this rescue belongs to; empty when it is unknown."""
    try:
        with open(os.path.join(base, protocol.INSTALLATION), encoding="ascii") as file:
            found = file.read(64).strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return found if installed.is_installation(found) else ""


@contextlib.contextmanager
def alone(base: str = protocol.BASE) -> Iterator[None]:
    """Hold the lock of the start of jobs in this rescue; raises :class:`JobError` when another run holds it."""
    state_dir = os.path.join(base, protocol.STATE_DIR)
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    os.chmod(state_dir, 0o700)
    with _lock(os.path.join(state_dir, "setup.lock")):
        yield


def progress(run: Run, base: str = protocol.BASE) -> dict[str, bool]:
    """Whether the job in this rescue is running, and whether one has succeeded."""
    try:
        status = _Runner(run, base).status()
    except JobError:
        # A runner that answers nonsense may be a job that runs.
        return {"running": True, "succeeded": False}
    if status is None:
        return {"running": False, "succeeded": False}
    return {"running": status.state == protocol.RUNNING, "succeeded": status.succeeded(protocol.MARKER_ONLY)}


def forget(base: str = protocol.BASE) -> None:
    """The job that has ended counts no more: what it wrote is gone. Call it within :func:`alone`."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(base, protocol.STATE_DIR, "state"))


class _Runner:
    """The runner in its place."""

    def __init__(self, run: Run, base: str) -> None:
        self.path = os.path.join(base, protocol.RUNNER)
        self._run, self._base = run, base

    def status(self) -> protocol.Status | None:
        """What it says now; None when there is none."""
        if not os.path.exists(self.path):
            return None
        answer = self._call("status")[1]
        try:
            return protocol.parse_status(answer)
        except protocol.ProtocolError as exc:
            raise JobError(f"{self.path} answers nonsense ({exc}); remove it if no command runs") from exc

    def start(self, job: Job) -> protocol.Status:
        """Start the installed job; returns the first status."""
        code, answer, error = self._call("start", job.digest, str(job.limit))
        if code != 0:
            raise JobError(f"the command could not be started: {error.strip()}")
        return protocol.parse_status(answer)

    def _call(self, *words: str) -> tuple[int, str, str]:
        return self._run(["sh", self.path] + list(words), environ_update={"KUBENODE_BASE": self._base})


@contextlib.contextmanager
def _staged(job: Job, base: str) -> Iterator[None]:
    """Meanwhile, an uploaded command lies beside its place, proven: no disk is emptied for one that is not whole."""
    try:
        if job.uploaded:
            _stage(job, base)
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_staging(base))


def head(job: Job, base: str = protocol.BASE) -> bytes:
    """The beginning of the command; call it while the job is prepared."""
    if not job.uploaded:
        return job.command[:256]
    with open(_staging(base), "rb") as file:
        return file.read(256)


def _staging(base: str) -> str:
    return os.path.join(base, protocol.COMMAND) + ".staged"


def _stage(job: Job, base: str) -> None:
    # A copy: a lost connection may hold the upload open, and the kernel runs nothing that is open for writing.
    source = os.path.join(base, protocol.COMMANDS, job.uploaded["sha256"])
    try:
        with open(source, "rb") as upload, _create(_staging(base), 0o700) as copy:
            found = protocol.job_digest_in_pieces(
                _copied(upload, copy), job.uploaded["size"], job.bootstrap, job.arguments
            )
    except OSError as exc:
        raise JobError(
            f"nothing was started: the uploaded image command {source} cannot be copied ({exc.strerror})"
        ) from exc
    if found != job.digest:
        raise JobError(f"nothing was started: {source} does not hold the image command that was sent; run again")


def _copied(source: BinaryIO, target: BinaryIO) -> Iterator[bytes]:
    for piece in iter(lambda: source.read(1 << 20), b""):
        target.write(piece)
        yield piece


def _install(job: Job, base: str) -> None:
    state_dir = os.path.join(base, protocol.STATE_DIR)
    _write(os.path.join(base, protocol.RUNNER), job.runner.encode("utf-8"), 0o700)
    # Beside this file, in the program that brought both.
    _write(os.path.join(base, protocol.RECORDER), pkgutil.get_data(__package__ or "", "recorder.py") or b"", 0o600)
    if job.uploaded:
        os.replace(_staging(base), os.path.join(base, protocol.COMMAND))
    else:
        _write(os.path.join(base, protocol.COMMAND), job.command, 0o700)
    _write(os.path.join(base, protocol.BOOTSTRAP), job.bootstrap, 0o600)
    lines = "".join(argument + "\n" for argument in job.arguments)
    _write(os.path.join(state_dir, "arguments"), lines.encode("utf-8", "surrogateescape"), 0o600)
    _write(os.path.join(state_dir, "token"), job.token.encode("utf-8"), 0o600)
    _write(os.path.join(base, protocol.INSTALLATION), job.installation.encode("ascii"), 0o600)
    _write(os.path.join(base, protocol.CONSENT), job.consent.encode("ascii", "replace"), 0o600)
    for path, content in job.files.items():
        _write(os.path.join(base, path), content, 0o600)
    _write(os.path.join(base, protocol.INTENT), job.intent.encode("utf-8", "replace"), 0o600)


def _write(path: str, content: bytes, mode: int) -> None:
    # A file is there as a whole, with its mode, or not at all.
    new = path + ".new"
    with _create(new, mode) as file:
        file.write(content)
    os.replace(new, path)


@contextlib.contextmanager
def _create(path: str, mode: int) -> Iterator[BinaryIO]:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        os.fchmod(file.fileno(), mode)


@contextlib.contextmanager
def _lock(path: str) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            free = safe_files.lock(descriptor, 120)
        except OSError as exc:
            raise JobError(f"nothing was started: the lock {path} cannot be taken ({exc.strerror})") from exc
        if not free:
            raise JobError(f"another run is setting up this machine (lock {path}); run again later")
        yield
    finally:
        os.close(descriptor)
