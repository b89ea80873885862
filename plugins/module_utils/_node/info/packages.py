# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Understands what package managers say. Pure."""

from __future__ import annotations

import re


def dpkg(text):
    """dpkg-query's lines `name TAB version TAB want-status-error` as ({name: version}, {held names})."""
    versions, held = {}, set()
    for line in (text or "").splitlines():
        fields = line.split("\t")
        if len(fields) != 3:
            continue
        name, version, status = fields[0], fields[1], fields[2].strip()
        if status[:1] == "h":
            held.add(name)
        # i: installed; W and t: installed, and a trigger is due
        if status[1:2] in ("i", "W", "t") and version:
            versions[name] = version
    return versions, held


def rpm(text, kernel=""):
    """rpm's lines `name TAB [epoch:]version-release` as {name: version}; other lines name what is missing.

    Of a package that is there in several versions, the one of the running kernel counts, else the last.
    """
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        pair = line.split("\t")
        if len(pair) == 2 and not (kernel and kernel.startswith(found.get(pair[0], "-") + ".")):
            found[pair[0]] = pair[1].replace("(none):", "")
    return found


def apt_policy(text):
    """`apt-cache policy` as {name: candidate}, without those that have none."""
    found, name = {}, None
    for line in (text or "").splitlines():
        if line and not line[0].isspace():
            name = line.rstrip(":")
        elif name and line.strip().startswith("Candidate:"):
            candidate = line.split(":", 1)[1].strip()
            if candidate and candidate != "(none)":
                found[name] = candidate
    return found


def dnf_repoquery(text):
    """Lines `name TAB version` of `dnf repoquery` as {name: version}; the last of a name counts."""
    return rpm(text)


def versionlock(text):
    """Names in dnf's versionlock.list (`name-epoch:version-release.arch`, `name-version…`) or versionlock.toml."""
    found = set()
    for line in (text or "").splitlines():
        line = line.strip()
        toml = re.match(r"""name\s*=\s*["']([^"']+)["']""", line)
        if toml:
            found.add(toml.group(1))
        elif line and line[0] not in "#![" and "=" not in line:
            # the version begins at the last hyphen but one: a release may have no hyphen, a version neither
            words = re.sub(r"\.\*\Z", "", line).split("-")
            if len(words) >= 3:
                found.add("-".join(words[:-2]) or line)
            elif words[0]:
                found.add(words[0])
    return found
