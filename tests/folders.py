# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and programs of a test, written with the folders above them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def put(path: Path, content: str | bytes = "", mode: int | None = None) -> Path:
    """Write one file; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if mode is not None:
        path.chmod(mode)
    return path


def put_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files by their paths below a folder."""
    for path, content in files.items():
        put(folder / path, content)


def put_programs(folder: Path, scripts: Mapping[str, str]) -> Path:
    """Write shell scripts by their names, of which these lines follow the first one; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in scripts.items():
        put(folder / name, f"#!/bin/sh\n{lines}\n", 0o755)
    return folder
