# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes files into the new root file system."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path

from commands.parts.chroot import inside


def write_whole(name: str, text: str, mode: int, folder_mode: int = 0o755) -> None:
    """Write a file whole, with its folders and the SELinux label of the folder it is in; runs inside the new root."""
    path = Path(name)
    for folder in [one for one in reversed(path.parents) if not one.is_dir()]:
        folder.mkdir(mode=folder_mode if folder == path.parent else 0o755)
        same_label(folder)
    if folder_mode != 0o755:
        path.parent.chmod(folder_mode)
    draft = path.with_name(".%s.kubenode" % path.name)
    draft.unlink(missing_ok=True)
    fd = os.open(str(draft), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as stream:
        stream.write(base64.b64decode(text))
        os.fchmod(fd, mode)
    same_label(draft)
    draft.replace(path)


def same_label(path: Path) -> None:
    """Copy the SELinux label of the folder a file is in; the rescue's kernel would leave it without one."""
    with contextlib.suppress(OSError):
        os.setxattr(str(path), "security.selinux", os.getxattr(str(path.parent), "security.selinux"))


def write_into(root: Path, name: str, data: bytes, mode: int, folder_mode: int = 0o755) -> None:
    """Write a file into a mounted new root."""
    inside(root, write_whole, name, base64.b64encode(data).decode(), mode, folder_mode)
