# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is looked at again and again: folders and files, which changes are over, and what is wrong with them now."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import ssl
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs, from_environment
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Signature, signature_of
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

from . import certificates

QUIET = 1.0  # seconds without a write after which a change counts as over


def scan(folder: str) -> dict[str, Signature]:
    """Every file by its name; hidden ones, backups of editors, folders and devices are none.

    Links are followed, as a mounted ConfigMap consists of them. OSError when the folder cannot be read.
    """
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith("~"):
                continue
            try:
                here = entry.stat()
            except OSError as error:
                if error.errno == errno.ENOENT and not entry.is_symlink():
                    continue  # it went away between the two
                found[entry.name] = Signature(0, 0, 0, 0, error.errno or -1)  # reading it will say why
                continue
            if stat.S_ISREG(here.st_mode):
                found[entry.name] = signature_of(here)
    return found


def read(path: str, most: int) -> bytes:
    """A file's content, at most so many bytes of it; never waits for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ImageError("it is no file")
            data = file.read(most + 1)
    except OSError as error:
        raise ImageError(f"it cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise ImageError(f"it has more than {most} bytes, which is the most")
    return data


def read_text(path: str, most: int) -> str:
    """The same as text."""
    try:
        return read(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImageError(f"it is no text in UTF-8 (byte {error.start})") from error


@dataclass(frozen=True)
class State:
    """What some files of one thing are now."""

    __slots__ = ("digest", "written")
    digest: bytes
    written: float  # when the newest was last written to, seconds since 1970


def state(files: Iterable[tuple[str, Signature]]) -> State:
    there = sorted(files)
    digest = hashlib.sha256(repr(there).encode("utf-8", "surrogatepass")).digest()[:16]
    return State(digest, max((signature.ctime_ns for _name, signature in there), default=0) / 1e9)


@dataclass
class Changes:
    """Which things changed or went away, returned once, when the change is over.

    A change is over when nothing was written for a second, or when two updates saw the same; what is missing in one
    update only was just being replaced. The first update takes everything as it is.
    """

    _taken: dict[str, bytes] = field(default_factory=dict)
    _seen: dict[str, bytes] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    _begun: bool = False

    @property
    def waits(self) -> bool:
        """Whether the next update may return something although nothing happens until then."""
        return not self._begun or bool(self._seen or self._missing)

    def update(self, states: Mapping[str, State]) -> tuple[list[str], list[str]]:
        """The keys that are new or changed, and those that are gone."""
        changed, seen, now = [], {}, time.time()
        for key, found in states.items():
            if self._taken.get(key) == found.digest:
                continue
            quiet = not 0 <= now - found.written < QUIET
            if quiet or not self._begun or self._seen.get(key) == found.digest:
                self._taken[key] = found.digest
                changed.append(key)
            else:
                seen[key] = found.digest
        missing = {key for key in self._taken if key not in states}
        gone = sorted(missing & self._missing)
        for key in gone:
            del self._taken[key]
        self._seen, self._missing, self._begun = seen, missing - set(gone), True
        return changed, gone


# --- what is wrong now: each problem is logged once when it comes, and once when it is gone.
#
# Callers report a problem, and its end, after they have changed what is served: a log line and the served images agree.


LOG = logging.getLogger("kubenode.images")


class Problems:
    """The problems that there are now, each by what it is a problem of."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._found)

    def report(self, what: str, problem: str, level: int = logging.ERROR) -> None:
        """Something's problem as it is now; "": none. ``level``: that of the line in the log."""
        if self._found.get(what, "") == problem:
            return
        if problem:
            self._found[what] = problem
            LOG.log(level, "%s: %s", escaped(what), escaped(problem))
        else:
            del self._found[what]
            LOG.info("%s: mended", escaped(what))

    def forget(self, what: str) -> None:
        """It is gone, and its problem with it."""
        self._found.pop(what, None)

    def all(self) -> Mapping[str, str]:
        """Every problem, in text that can be printed."""
        return {escaped(what): escaped(problem) for what, problem in sorted(self._found.copy().items())}


# --- files that are read again when they change: what all hosts have in common, and the TLS certificate


PULL_SECRET = "/run/secrets/pull-secret"
_MOST = 4 * 1024 * 1024
_NAME = "common inputs"


class CommonInputs:
    """The agent's inputs as they are now.

    When a file becomes bad, the last good values stay: the file is common to all hosts, whose own inputs are good.
    """

    def __init__(self, environ: Mapping[str, str], problems: Problems, pull_secret_file: str = "") -> None:
        """Read everything; ImageError when something is wrong already now."""
        self._environ, self._problems = environ, problems
        self._places = {PULL_SECRET: pull_secret_file or PULL_SECRET}
        self._paths = [self._places[PULL_SECRET], environ.get("CA_BUNDLE", ""), environ.get("REGISTRIES_CONF_PATH", "")]
        if pull_secret_file:
            try:
                read_text(pull_secret_file, _MOST)
            except ImageError as error:  # one that is named has to be there
                raise ImageError(f"pull-secret-file {pull_secret_file}: {error}") from error
        self._signatures = _signatures(self._paths)
        self._current = self._read()
        self._problem = ""

    def __call__(self) -> AgentInputs:
        """The same object as long as nothing changed."""
        return self._current

    @property
    def modified(self) -> float:
        """When the newest file was written (seconds since 1970)."""
        return max((one.mtime_ns for one in self._signatures if one is not None), default=0) / 1e9

    def refresh(self) -> bool:
        """Read again what changed; returns whether the inputs are others now. Call `report` after acting on that."""
        found = _signatures(self._paths)
        if found == self._signatures:
            return False
        self._signatures, before = found, self._current
        try:
            self._current = self._read()
        except ImageError as error:
            self._problem = f"{error}; the values that were there before are used"
            return False
        self._problem = ""
        return self._current != before

    def report(self) -> None:
        """Report what is wrong with them, or that nothing is any more."""
        self._problems.report(_NAME, self._problem)

    def _read(self) -> AgentInputs:
        return from_environment(self._environ, self._text).checked()

    def _text(self, path: str) -> str | None:
        try:
            return read_text(self._places.get(path, path), _MOST)
        except ImageError:
            return None


def _signatures(paths: Iterable[str]) -> tuple[Signature | None, ...]:
    return tuple(_signature(path) for path in paths)


def _signature(path: str) -> Signature | None:
    try:
        return signature_of(os.stat(path)) if path else None
    except OSError:
        return None


_JUDGED = 3600.0  # seconds until a certificate is looked at again, since it may have expired meanwhile


class Certificate:
    """The pair of files, and the context for connections from now on."""

    def __init__(self, certificate: str, key: str, name: str) -> None:
        """Read them; ImageError when they cannot be used. ``name``: the host in the published URL, "": of no matter."""
        self._paths, self._name = (certificate, key), name
        self._signatures = _signatures(self._paths)
        self.context = self._load()
        self._unusable, self._again = "", float("-inf")

    def renew(self, problems: Problems, use: Callable[[ssl.SSLContext], None]) -> None:
        """Use the context of a new pair; the old one stays when it cannot be used.

        That is a problem, and so is a certificate that clients refuse, which is used all the same: not all verify.
        """
        found, now = _signatures(self._paths), time.monotonic()
        changed = found != self._signatures
        if not changed and now < self._again:
            return
        self._signatures, self._again = found, now + _JUDGED
        if changed:
            try:
                self.context, self._unusable = self._load(), ""
                use(self.context)
            except ImageError as error:
                self._unusable = f"{error}; the certificate that was there before is used"
        verdict = certificates.judged(self.context, self._paths[0], self._name)
        problem = self._unusable or verdict.out_of_date or verdict.refused
        problems.report("TLS", problem, logging.ERROR if self._unusable else logging.WARNING)
        if changed and not self._unusable:
            LOG.info("TLS: the certificate was renewed")

    def _load(self) -> ssl.SSLContext:
        certificate, key = self._paths
        try:
            return certificates.loaded(certificate, key)
        except ImageError as error:
            raise ImageError(f"tls-cert {certificate} and tls-key {key} cannot be used: {error}") from error
