# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the text of files that no linter of others knows."""

from __future__ import annotations

import re
from pathlib import Path

from .paths import CHECKOUT

#: a registry is configured on the machine, never in a file; a path of one machine is wrong everywhere else
FORBIDDEN = {
    r"\b(deb|security|snapshot|ftp)\.debian\.org\b": "a package registry host",
    r"\b(archive|security|ports)\.ubuntu\.com\b": "a package registry host",
    r"\b(test\.)?pypi\.(org|python\.org)\b": "a package registry host",
    r"\bfiles\.pythonhosted\.org\b": "a package registry host",
    r"(?<![\w.])/(root|home/\w+)/\.(pyenv|cache)\b": "a path of one machine",
    # the file systems of other tests stay mounted there when they are unmounted, and their last bytes unwritten
    r"""unshare["',\s].*--mount\b(?!.*--propagation["',\s]+slave)""": "a namespace that holds the mounts of others",
    # the folder of this checkout is another one on other machines
    r"(?<![\w.])%s\b" % re.escape(str(CHECKOUT)): "a path of one machine",
}
_FORBIDDEN = [(re.compile(pattern), what) for pattern, what in FORBIDDEN.items()]

#: words that a reader with English as a second language reads twice, also in names, and plain ones in their place
PLAIN_WORDS = {
    "anew": "again",
    "arrivals?": "boot, observed state",
    "books?": "store, records",
    # a fact of the firmware has this name
    "chassis(?!_(?:type|vendor))": "power control, server",
    "door": "gate, endpoint, proxy",
    "journeys?": "boot flow, run",
    "ladder": "reset escalation",
    "nobody": "no user, no process, no one",
    "sights?": "observed state, look",
    "somebody": "a user, a process, another system",
    "told": "said, reported, given",
    "whoever": "every user who, a process that",
}
_PLAIN_WORDS = [
    (re.compile(f"(?<![a-z])(?:{word})(?![a-z])", re.IGNORECASE), plain) for word, plain in PLAIN_WORDS.items()
]
#: the table above, and data that may hold any letters
_ANY_WORDS = ("dev/toolchain/text_rules.py", ".b64")

#: lines a file may have, by folder
LENGTHS = {
    "dev": 400,
    "lab": 600,
    "tests": 600,
    "plugins": 600,
    "provision": 400,
}


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


def plain_words(root: Path, names: list[str]) -> list[str]:
    """One line for each word of ``PLAIN_WORDS``, with the plain ones to choose from."""
    result = []
    for name in names:
        if name.endswith(_ANY_WORDS):
            continue
        for number, line in enumerate(_text(root / name).splitlines(), 1):
            for pattern, plain in _PLAIN_WORDS:
                result += ["%s:%d: '%s', say: %s" % (name, number, found, plain) for found in pattern.findall(line)]
    return result


def too_long(root: Path, names: list[str]) -> list[str]:
    """One line for each program file that no longer fits in one head."""
    result = []
    for name in names:
        places = [place for place in LENGTHS if name.startswith(place + "/")]
        text = _text(root / name)
        if not places or not (name.endswith((".py", ".sh")) or text.startswith("#!")):
            continue
        lines, limit = len(text.splitlines()), LENGTHS[max(places, key=len)]
        if lines > limit:
            result.append("%s: %d lines, %d are allowed here" % (name, lines, limit))
    return result


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
    return "sh" if re.search(r"[/ ](sh|dash|bash)\b", head[0]) else ""


def _text(path: Path) -> str:
    """Text of a file; nothing for links, folders and binary files."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
