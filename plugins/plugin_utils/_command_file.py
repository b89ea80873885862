# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an image command lives on the controller."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import names

#: The image commands that come with the collection.
SHIPPED = Path(__file__).resolve().parents[2] / "playbooks" / "files"


class CommandNotUsable(ValueError):
    """There is no such image command, or it must not be used; the text says why and what to do."""


@dataclass(frozen=True)
class Command:
    """An image command, read."""

    path: str
    content: bytes
    shipped: bool

    @property
    def sha256(self) -> str:
        """Digest of the program."""
        return hashlib.sha256(self.content).hexdigest()


def find_command(name: str, directory: str) -> Command:
    """The command ``name`` of ``directory``, else the one of that name shipped with the collection."""
    try:
        names.check_command_name(name)
    except names.InvalidName as exc:
        raise CommandNotUsable(str(exc)) from exc
    path = Path(directory) / name
    if path.is_symlink() or path.exists():
        return Command(str(path), _read(path, Path(directory)), shipped=False)
    shipped = SHIPPED / name
    if shipped.is_file():
        return Command(str(shipped), shipped.read_bytes(), shipped=True)
    raise CommandNotUsable(
        f"there is no {path}, and the collection ships no command of that name "
        f"(it ships: {', '.join(shipped_commands()) or 'none'}); put the program there or set command_dir"
    )


def shipped_commands() -> list[str]:
    """Names of the image commands that come with the collection."""
    if not SHIPPED.is_dir():
        return []
    return sorted(path.name for path in SHIPPED.iterdir() if path.name.startswith(names.COMMAND_PREFIX))


def _read(path: Path, directory: Path) -> bytes:
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
    content = real.read_bytes()
    if not content:
        raise CommandNotUsable(f"{path} is empty")
    return content
