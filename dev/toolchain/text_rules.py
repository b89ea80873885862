# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the text of files that no linter of others knows."""

from __future__ import annotations

import re
from pathlib import Path

from .paths import CHECKOUT

#: a registry is configured on the machine, never in a file; a path of somebody's machine is wrong everywhere else
FORBIDDEN = {
    r"\b(deb|security|snapshot|ftp)\.debian\.org\b": "a package registry host",
    r"\b(archive|security|ports)\.ubuntu\.com\b": "a package registry host",
    r"\b(test\.)?pypi\.(org|python\.org)\b": "a package registry host",
    r"\bfiles\.pythonhosted\.org\b": "a package registry host",
    r"(?<![\w.])/(root|home/\w+)/\.(pyenv|cache)\b": "a path of one machine",
    # the file systems of other tests stay mounted there when they are unmounted, and their last bytes unwritten
    r"""unshare["',\s].*--mount\b(?!.*--propagation["',\s]+slave)""": "a namespace that holds the mounts of others",
    # wherever this checkout lies, it lies elsewhere for everybody else
    r"(?<![\w.])%s\b" % re.escape(str(CHECKOUT)): "a path of one machine",
}
_FORBIDDEN = [(re.compile(pattern), what) for pattern, what in FORBIDDEN.items()]

#: lines a file may have, by folder
LENGTHS = {
    "commands": 300,
    "dev": 400,
    "lab": 600,
    "tests": 600,
    "plugins": 600,
    "playbooks/files": 700,
    "provision": 400,
}

#: how a program says that nobody reads it: its sources keep the rules; dev/assemble --check finds it when it is a lie
GENERATED = "# made by dev/assemble from commands/; do not edit"


def forbidden_words(root: Path, names: list[str]) -> list[str]:
    """One line for each file that names a registry host or a path of one machine."""
    result = []
    for name in names:
        text = _text(root / name)
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in _FORBIDDEN:
                match = pattern.search(line)
                if match:
                    result.append("%s:%d: names %s, %s" % (name, number, what, match[0]))
    return result


def too_long(root: Path, names: list[str]) -> list[str]:
    """One line for each program file that no longer fits in one head."""
    result = []
    for name in names:
        places = [place for place in LENGTHS if name.startswith(place + "/")]
        text = _text(root / name)
        if not places or generated(text) or not (name.endswith((".py", ".sh")) or text.startswith("#!")):
            continue
        lines, limit = len(text.splitlines()), LENGTHS[max(places, key=len)]
        if lines > limit:
            result.append("%s: %d lines, %d are allowed here" % (name, lines, limit))
    return result


def generated(text: str) -> bool:
    """Whether a program says that it is made from sources."""
    return GENERATED in text.splitlines()[:10]


def language(root: Path, name: str) -> str:
    """Language of a program: `python`, `sh`, or nothing for other files."""
    if name.endswith(".py"):
        return "python"
    head = _text(root / name).splitlines()[:10]
    if name.endswith(".sh"):
        return "sh"
    if not head or not head[0].startswith("#!"):
        return ""
    if re.search(r"[/ ]python3?\b", head[0]):
        return "python"
    if not re.search(r"[/ ](sh|dash|bash)\b", head[0]):
        return ""
    # a shell program whose quotes make it a Python program too is Python from there on
    return "python" if any(line.startswith(("'''", '"""')) for line in head) else "sh"


def _text(path: Path) -> str:
    """Text of a file; nothing for links, folders and binary files."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
