# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder that --state-dir names: one run at a time works in it, and the payload lies in it, found by its digest.

It may hold anything else: what is ours in it begins with our prefix and has a mark.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import pkgutil
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision import RunError

LOCK = "kubenode-provision.lock"
_LONGEST = 24
_OURS = re.compile(rb"([0-9]{1,10}\n)?")


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700; RunError when another user could have written into it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise RunError(
            f"{path} is not a folder that only its owner, user {os.geteuid()}, can write to: name another one"
        )
    return path


@contextmanager
def only_run(state: Path) -> Iterator[None]:
    """Hold the lock of the folder; RunError when another run holds it. The kernel frees it when the process dies."""
    path = private_folder(state) / LOCK
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    with os.fdopen(fd, "r+b", buffering=0) as handle:
        # the folder may be one with files of others in it
        text = os.pread(fd, _LONGEST, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b"?"
        if not _OURS.fullmatch(text):
            raise RunError(f"{path} is no lock of this program: move it away, or name another --state-dir")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"another run is at work here (process {text.decode().strip() or '?'}): wait for it"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield


PAYLOAD, DIGEST, VERSION = "payload.tar.xz", "payload.sha256", "version"
#: names of our folders: this and 16 digits of the payload's digest; a draft has the second one
PREFIX, DRAFT = "payload-", "payload-draft-"
#: a file in each folder that we made, written before anything else: whose payload it is, and the folder's own inode
MARK = ".kubenode-provision"
_MARKED = re.compile(r"kubenode\.provision payload ([0-9a-f]{64}) inode ([0-9]{1,20})\n", re.ASCII)
_LARGEST_MARK = 200


def resource(name: str) -> bytes:
    """A file that was put into the archive beside this one."""
    data = pkgutil.get_data("provision", name)
    if data is None:
        raise RunError(f"{name} is missing in this program: build it again by make provision")
    return data


def unpacked(state: Path) -> Path:
    """The folder of this program's payload below `state`, made when it is not there.

    For the holder of the lock; the rename lets readers see either nothing or everything.
    """
    digest = resource(DIGEST).decode("ascii").strip()
    target = state / (PREFIX + digest[:16])
    if os.path.lexists(target):
        if _marked(target) is None:
            raise RunError(f"{target} is not what this program unpacked: move it away, or name another --state-dir")
        return target
    payload = resource(PAYLOAD)
    if hashlib.sha256(payload).hexdigest() != digest:
        raise RunError("this program is damaged: its payload has another digest; fetch it again")
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=state))
    try:
        _mark(draft, digest)
        _extract(payload, draft)
        # what the rename makes visible must survive a power cut
        os.sync()
        draft.rename(target)
    except OSError as error:
        # made a moment ago in a folder that only we can write to: nothing else can be in it
        shutil.rmtree(draft, ignore_errors=True)
        raise RunError(f"{state}: {error.strerror or error}") from None
    return target


def remove_older(state: Path, current: Path) -> list[str]:
    """Remove what other versions unpacked, and what interrupted runs left; what could not be removed, and why.

    Only folders that carry the mark of this program, at the place where it made them. For the holder of the lock. The
    helper for trees is the payload's, so this comes after unpacking.
    """
    from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files

    stays = []
    for other in sorted(state.glob(PREFIX + "*")):
        if other != current and _is_ours(other):
            try:
                stays += [f"{path} is mounted" for path in safe_files.remove(str(other))]
            except OSError as error:
                stays.append(f"{error.filename or other}: {error.strerror}")
    return stays


def _is_ours(folder: Path) -> bool:
    """Whether this program made this very folder: a copy has another inode, and what was renamed another name."""
    marked = _marked(folder)
    if marked is None:
        return False
    digest, inode = marked
    named = folder.name == PREFIX + digest[:16] or folder.name.startswith(DRAFT)
    return named and inode == folder.lstat().st_ino


def _mark(folder: Path, digest: str) -> None:
    text = f"kubenode.provision payload {digest} inode {folder.lstat().st_ino}\n"
    with os.fdopen(os.open(folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def _marked(folder: Path) -> tuple[str, int] | None:
    """The digest and the inode in a folder's mark; None for links, for folders of others and without a mark."""
    try:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            return None
        fd = os.open(folder / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            return None
        found = _MARKED.fullmatch(file.read(_LARGEST_MARK).decode("ascii", "replace"))
    return (found[1], int(found[2])) if found else None


def _extract(payload: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(payload), mode="r:xz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)  # ours, and its digest is right
