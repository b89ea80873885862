# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads the wanted members of an archive, and lets a hostile one do no harm."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from typing import IO, Any

from .fetch import FetchError

_ZSTD = b"\x28\xb5\x2f\xfd"


class ArchiveError(FetchError):
    """The archive does not hold what is wanted, or what it holds is not safe."""


def member_name(name: str) -> str:
    """A member's name without a leading "./"; raises ArchiveError for one that leads elsewhere. Pure."""
    clean = posixpath.normpath(name)
    if not name or name.startswith("/") or clean == ".." or clean.startswith("../") or "\0" in name or "\n" in name:
        raise ArchiveError("the archive has a member with the name %r, which is not safe" % name)
    return clean


def matches(pattern: str, name: str) -> bool:
    """Whether a name has the pattern's form, folder by folder: * does not go into folders. Pure."""
    wanted, found = posixpath.normpath(pattern).split("/"), name.split("/")
    return len(wanted) == len(found) and all(fnmatch.fnmatchcase(*pair) for pair in zip(found, wanted))


def extract(path: str, wanted: Sequence[str], take: Callable[[int, str, Any, int], None], zstd: str = "zstd") -> None:
    """Call ``take(pattern's index, member's name, file, size)`` for every regular member that a pattern means.

    ``wanted`` are the patterns; each must mean at least one member. Raises ArchiveError.
    """
    seen, used = set(), set()
    with _opened(path, zstd) as archive:
        for member in archive:
            name = member_name(member.name)
            indexes = [index for index, pattern in enumerate(wanted) if matches(pattern, name)]
            if not indexes or member.isdir():
                continue
            if not member.isreg():
                raise ArchiveError("the archive's member %s is not a regular file" % name)
            if name in seen:
                raise ArchiveError("the archive has the member %s twice" % name)
            seen.add(name)
            for index in indexes[:1]:
                used.add(index)
                take(index, name, archive.extractfile(member), member.size)
    unused = [pattern for index, pattern in enumerate(wanted) if index not in used]
    if unused:
        raise ArchiveError("the archive has no member %s" % ", ".join(unused))


class _opened:  # noqa: N801
    """A tar file as a stream, unpacked by Python, or by the program zstd."""

    def __init__(self, path: str, zstd: str) -> None:
        self._path, self._zstd = path, zstd
        self._process: subprocess.Popen[bytes] | None = None
        self._tar: tarfile.TarFile | None = None

    def __enter__(self) -> tarfile.TarFile:
        try:
            with open(self._path, "rb") as file:
                is_zstd = file.read(len(_ZSTD)) == _ZSTD
            if not is_zstd:
                self._tar = tarfile.open(self._path, "r|*")  # pylint: disable=consider-using-with
                return self._tar
            # AnsibleModule.run_command cannot stream.
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                [self._zstd, "-dc", "--", self._path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
            self._tar = tarfile.open(fileobj=self._process.stdout, mode="r|")  # pylint: disable=consider-using-with
        except FileNotFoundError as error:
            raise ArchiveError(
                "the archive is packed with zstd, and the program %s is not there" % self._zstd
            ) from error
        except (tarfile.TarError, EOFError, OSError) as error:
            self._end()
            raise ArchiveError("the archive cannot be read: %s" % error) from error
        return self._tar

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._end()
        if isinstance(error, (tarfile.TarError, EOFError, UnicodeError)) or type(error).__module__ == "zlib":
            raise ArchiveError("the archive cannot be read: %s" % error) from error

    def _end(self) -> None:
        if self._tar:
            self._tar.close()
        if self._process:
            self._process.kill()
            if self._process.stdout:
                self._process.stdout.close()
            self._process.wait()


def copy(source: Any, target: IO[bytes], limit: int, chunk: int = 1 << 18) -> None:
    """Copy exactly ``limit`` bytes; raises ArchiveError when there are fewer."""
    left = limit
    while left:
        data = source.read(min(chunk, left))
        if not data:
            raise ArchiveError("the archive ends too early")
        target.write(data)
        left -= len(data)
    target.flush()
    os.fsync(target.fileno())
