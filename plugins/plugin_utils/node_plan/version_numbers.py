# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Version numbers as Kubernetes, containerd and the package managers write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number

_PLAIN = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?\Z")
_LEADING = re.compile(r"(?:[0-9]+:)?v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")


def is_release(text: str) -> bool:
    """Whether the text is a full release number, for example 1.36.4 (no v, no suffix)."""
    match = _PLAIN.match(text)
    return bool(match and match.group(3) and numbers(text))


def numbers(text: str | None) -> tuple[int, int, int] | None:
    """The (major, minor, patch) a version begins with, without epoch and distribution suffix; None when there is none.

    1.7.24~ds1-6+deb13u1 → (1, 7, 24); 5:27.3.1-1~debian → (27, 3, 1); 2.3 → (2, 3, 0).
    """
    match = _LEADING.match(text or "")
    if not match:
        return None
    major, minor_, patch = (whole_number(part or "0") for part in match.groups())
    return None if major is None or minor_ is None or patch is None else (major, minor_, patch)


def plain(text: str | None) -> str:
    """The version as major.minor.patch, "" when the text has none."""
    found = numbers(text)
    return "%d.%d.%d" % found if found else ""


def release(text: str) -> tuple[int, int, int]:
    """(major, minor, patch) of a text that is a version; ValueError for another."""
    found = numbers(text)
    if found is None:
        raise ValueError(f"{text!r} is no version")
    return found


def minor(text: str) -> str:
    """The release line of a version, for example 1.36 of 1.36.4; ValueError for a text that is no version."""
    return "{}.{}".format(*release(text))


def for_minor(table: Mapping[str, Any], version: str) -> Any:
    """The entry of a table by minor that a version gets: its own, else the nearest older minor's, else the oldest.

    A minor that the table does not know yet is so handled like the newest known one.
    """
    wanted = release(version)[:2]
    known = sorted(table, key=release)
    chosen = known[0]
    for name in known:
        if release(name)[:2] <= wanted:
            chosen = name
    return table[chosen]


def satisfies(version: str, minimums: Iterable[str]) -> bool:
    """Whether a version is at or above the minimum of its own release line, or of a line newer than every listed one.

    A line between or below the listed ones was never tested by the project, so it does not satisfy.
    """
    found, lines = release(version), {release(text)[:2]: release(text) for text in minimums}
    if found[:2] in lines:
        return found >= lines[found[:2]]
    return found[:2] > max(lines)
