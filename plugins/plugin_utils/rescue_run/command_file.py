# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an image command lives on the controller."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible.errors import AnsibleError

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import InvalidName
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import names, pre_provision

_ELF, _BOM = b"\x7fELF", b"\xef\xbb\xbf"
#: What Linux before 5.1 read of a first line.
_LONGEST_FIRST_LINE = 127
#: Bytes of a command that travels with the call that starts it; a larger one is uploaded before.
LARGEST_SENT_ALONG = 1024 * 1024
_PIECE = 1024 * 1024
#: The image commands that come with the collection.
SHIPPED = Path(__file__).resolve().parents[2] / "playbooks" / "files"


class CommandNotUsable(ValueError):
    """There is no such image command, or it must not be used; the text says why and what to do."""


@dataclass(frozen=True)
class Command:
    """An image command, looked at."""

    path: str
    shipped: bool
    size: int
    sha256: str
    #: All of it, or the beginning of a large one: what is uploaded is never in memory as a whole.
    head: bytes

    @property
    def is_large(self) -> bool:
        """Whether it is uploaded before it is started."""
        return self.size > LARGEST_SENT_ALONG

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, read again."""
        with open(self.path, "rb") as file:
            yield from iter(lambda: file.read(_PIECE), b"")


def find_command(name: str, directory: str, allowed: str = names.PREFIXED) -> Command:
    """The command ``name`` of ``directory``, else the one of that name shipped with the collection."""
    try:
        names.check_command_name(name, allowed)
    except InvalidName as exc:
        raise CommandNotUsable(str(exc)) from exc
    path = Path(directory) / name
    if path.is_symlink() or path.exists():
        return _read(path, Path(directory))
    shipped = SHIPPED / name
    if shipped.is_file():
        return _command(shipped, is_shipped=True)
    raise CommandNotUsable(
        f"there is no {path}, and the collection ships no command of that name "
        f"(it ships: {', '.join(shipped_commands()) or 'none'}); put the program there or set command_dir"
    )


def find_pre_provision_command(given: str, directory: str, find_file: Callable[[str], str]) -> Command:
    """The program of a user that ``given`` names: the name of a file in ``directory``, or a path.

    ``find_file``: where Ansible finds a file of the controller by its path.
    """
    path = Path(directory) / given
    if "/" in given:
        try:
            path = Path(find_file(os.path.expanduser(given)))
        except AnsibleError as exc:
            looked = str(exc).partition("looked at ")[2].splitlines()[:1]
            where = f" (looked at {looked[0]})" if looked else ""
            raise CommandNotUsable(f"there is no such file{where}; put the program there") from exc
    try:
        pre_provision.check_name(path.name)
    except InvalidName as exc:
        raise CommandNotUsable(str(exc)) from exc
    if not path.is_symlink() and not path.exists():
        raise CommandNotUsable(f"there is no {path}; put the program there, give its path, or set command_dir")
    return _read(path, path.parent)


def shipped_commands() -> list[str]:
    """Names of the image commands that come with the collection."""
    if not SHIPPED.is_dir():
        return []
    return sorted(path.name for path in SHIPPED.iterdir() if path.name.startswith(names.COMMAND_PREFIX))


def _read(path: Path, directory: Path) -> Command:
    try:
        real, root = path.resolve(strict=True), directory.resolve(strict=True)
    except OSError as exc:
        raise CommandNotUsable(f"{path} is a link that leads nowhere; mend the link") from exc
    if not real.is_relative_to(root):
        raise CommandNotUsable(f"{path} leads to {real}, outside of {directory}; copy the program into {directory}")
    mode = real.stat().st_mode
    if not stat.S_ISREG(mode):
        raise CommandNotUsable(f"{path} is not a file")
    if not mode & 0o111:
        raise CommandNotUsable(f"{path} is not executable; chmod +x {path}")
    if not os.access(real, os.R_OK):
        raise CommandNotUsable(f"{path} is not readable for the user that runs Ansible")
    command = _command(path, is_shipped=False)
    error = content_error(command.head)
    if error is not None:
        raise CommandNotUsable(f"{path} {error}")
    return command


def _command(path: Path, is_shipped: bool) -> Command:
    with path.open("rb") as file:
        head = file.read(LARGEST_SENT_ALONG)
        digest, size = hashlib.sha256(head), len(head)
        for piece in iter(lambda: file.read(_PIECE), b""):
            digest.update(piece)
            size += len(piece)
    return Command(str(path), is_shipped, size, digest.hexdigest(), head)


def content_error(content: bytes) -> str | None:
    """Why no machine can run a file that begins so, and what to do; None when nothing speaks against it (pure)."""
    if not content.strip():
        return "is empty; put the program there"
    if content.startswith(_ELF):
        return None
    first = content.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        if first.startswith((_BOM + b"#!", "\ufeff#!".encode("utf-16-le"), "\ufeff#!".encode("utf-16-be"))):
            return "begins with a byte order mark, so that its first line is not seen; save it as UTF-8 without one"
        return "is no program: its first line names no interpreter (#!/bin/sh) and it is no ELF file; add that line"
    if b"\r" in first:
        return "has line ends of Windows (CRLF), so that its interpreter is not found; convert it (dos2unix)"
    words = first[2:].split()
    interpreter = words[0].decode("utf-8", "replace") if words else ""
    if not interpreter.startswith("/") or b"\0" in first:
        return f"names in its first line the interpreter {interpreter[:60]!r}; give an absolute path, such as #!/bin/sh"
    if len(first) > _LONGEST_FIRST_LINE:
        return f"has a first line of more than {_LONGEST_FIRST_LINE} bytes, which kernels cut; make it shorter"
    return None


def interpreter_of(content: bytes) -> str:
    """The interpreter in the first line of a command, for messages; empty when it is none (pure)."""
    first = content.partition(b"\n")[0]
    words = first[2:].split() if first.startswith(b"#!") else []
    return " ".join(word.decode("utf-8", "replace") for word in words)
