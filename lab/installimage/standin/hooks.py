# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scripts of the user: before anything is unpacked, and at the very end inside the new system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import host
from .screen import debug, say
from .target import Target

_POST_MOUNT = ("/root/post-mount", "/post-mount")
_POST_INSTALL = ("/root/post-install", "/post-install")
_IN_IMAGE = ("/root/post-install", "/root/post-install.sh")


def post_mount() -> bool:
    """Run the post-mount script, if there is one that may be executed; False when it failed."""
    for script in _POST_MOUNT:
        if _executable(Path(script)):
            say("         :  Executing post mount script")
            status = host.stream(script)
            debug(f"post-mount script ended with status {status}")
            return status == 0
    return True


def post_install(target: Target) -> None:
    """Run the post-install script inside the new system; how it ends does not matter to the installation."""
    script = _place(target)
    if script is None:
        return
    say("         :  Executing post installation script")
    debug(f"# Found post-installation script {script}; executing it...")
    status = target.stream(script)
    if status:
        debug(f"# Post-installation script didn't exit successfully (exit code = {status})")
    target.file("/post-install").unlink(missing_ok=True)


def _place(target: Target) -> str | None:
    for script in map(Path, _POST_INSTALL):
        if _executable(script):
            target.file("/post-install").unlink(missing_ok=True)
            shutil.copy(script, target.file("/post-install"))
            return "/post-install"
    return next((script for script in _IN_IMAGE if _executable(target.file(script))), None)


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
