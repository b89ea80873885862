# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Checks the list of artifacts before anything is fetched. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypedDict

from .. import host
from . import fetch

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODE = re.compile(r"0[0-7]{3}")
_FIELDS = {"name", "version", "url", *fetch.ALGORITHMS, "kind", "install", "links"}
_INSTALL = {"member", "path", "directory", "mode"}


class Installed(TypedDict, total=False):
    """What goes where: the binary, or a ``member`` of the archive, to a path or into a directory."""

    member: str
    path: str
    directory: str
    #: Octal, by default 0755.
    mode: str


class Link(TypedDict):
    """A link to an installed file."""

    path: str
    target: str


class _Pinned(TypedDict, total=False):
    #: One of both; None in a plan without a pinned digest, which its preflight refuses.
    sha256: str | None
    sha512: str | None
    links: list[Link]


class Artifact(_Pinned):
    """A program as node_artifacts takes it, pinned by one digest; the module's documentation says what each means."""

    name: str
    version: str
    url: str
    kind: str
    install: list[Installed]


def errors(artifacts: Iterable[dict[str, Any]]) -> list[str]:
    """One line for everything that is wrong."""
    found: list[str] = []
    seen: set[str] = set()
    targets: dict[str, str] = {}
    for index, artifact in enumerate(artifacts):
        name = artifact.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            found.append("artifacts[%d]: name %r must be letters, digits, dots, hyphens" % (index, name))
            continue
        if name in seen:
            found.append("%s: this name occurs twice" % name)
        seen.add(name)
        found += ["%s: %s" % (name, error) for error in _artifact(artifact)]
        for entry in list(artifact.get("install") or []) + list(artifact.get("links") or []):
            path = entry.get("path") if isinstance(entry, dict) else None
            if path and targets.setdefault(path, name) != name:
                found.append("%s: %s is already a file of %s" % (name, path, targets[path]))
    return found


def _artifact(artifact: dict[str, Any]) -> list[str]:
    found = ["there is no field %s" % field for field in sorted(set(artifact) - _FIELDS)]
    found += ["%s is missing" % field for field in ("version", "url") if not artifact.get(field)]
    given = [name for name in fetch.ALGORITHMS if artifact.get(name)]
    if len(given) != 1:
        found.append("exactly one of %s must be given" % " and ".join(fetch.ALGORITHMS))
    if artifact.get("kind") not in ("binary", "tar"):
        found.append("kind %r must be binary or tar" % artifact.get("kind"))
    if artifact.get("url") and fetch.url_error(artifact["url"]):
        # the URL itself may hold a password
        found.append("url %s" % fetch.url_error(artifact["url"]))
    for name in given:
        if not re.fullmatch(r"[0-9a-f]{%d}" % fetch.ALGORITHMS[name], str(artifact[name])):
            found.append(
                "%s %r must be %d lower-case hexadecimal digits" % (name, artifact[name], fetch.ALGORITHMS[name])
            )
    install = artifact.get("install")
    if not isinstance(install, list) or not install or not all(isinstance(entry, dict) for entry in install):
        return found + ["install must be a list of what goes where, and not empty"]
    if artifact.get("kind") == "binary" and len(install) != 1:
        found.append("a binary is installed once; use links for other names")
    for entry in install:
        found += ["install: %s" % error for error in _install(entry, artifact.get("kind"))]
    for link in artifact.get("links") or []:
        if not isinstance(link, dict) or set(link) != {"path", "target"} or not isinstance(link["target"], str):
            found.append("links must have path and target")
        elif host.path_error(link["path"]) or not link["target"]:
            found.append("links: path %r %s" % (link["path"], host.path_error(link["path"]) or "needs a target"))
    return found


def _install(entry: dict[str, Any], kind: Any) -> list[str]:
    found = ["there is no field %s" % field for field in sorted(set(entry) - _INSTALL)]
    if bool(entry.get("path")) == bool(entry.get("directory")):
        found.append("exactly one of path and directory must be given")
    for field in ("path", "directory"):
        if entry.get(field) and host.path_error(entry[field]):
            found.append("%s %r %s" % (field, entry[field], host.path_error(entry[field])))
    if not _MODE.fullmatch(str(entry.get("mode", "0755"))):
        found.append('mode %r must be an octal number in quotes, such as "0755"' % entry.get("mode"))
    if kind == "tar":
        try:
            fetch.member_name(str(entry.get("member") or ""))
        except fetch.ArchiveError:
            found.append("member %r must be a path inside the archive" % entry.get("member"))
    elif entry.get("member") or not entry.get("path"):
        found.append("a binary is installed at a path, and has no member")
    return found
