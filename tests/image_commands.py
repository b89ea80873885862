# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped image commands, for tests that run one without the collection or put one into a script of their own."""

import base64
import functools
from pathlib import Path

from dev.toolchain.release import write_image_commands


@functools.cache
def _written() -> dict[str, Path]:
    return {path.name: path for path in write_image_commands()}


def image_command(name: str) -> Path:
    """A shipped command as an executable file; ``name`` without its image-url-command-."""
    return _written()[f"image-url-command-{name}"]


def written_by_shell(name: str, target: str) -> str:
    """Shell lines that write a shipped command to a file of the rescue."""
    text = base64.encodebytes(image_command(name).read_bytes()).decode("ascii")
    return f"base64 -d >{target} <<'END-OF-COMMAND'\n{text}END-OF-COMMAND\nchmod 0700 {target}\n"
