# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A base of the matrix that is made of packages: what node_image_debian and node_image_source are told (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import debian

#: Architectures of Hetzner Cloud, as Debian and installimage call them.
DEBIAN_NAMES = {"x86": "amd64", "arm": "arm64"}
_TEXTS = ("suite", "kernel", "keyring")
_LISTS = ("mirrors", "include", "apt_options")


class Root:
    """The root file system of one base and architecture; several builds may begin with it.

    ``options``: those of node_image_debian. ``source``: an image of node_image_source, whose name stands for all that
    decides about the content. ``findings``: what is wrong, one text each; with any, the others mean nothing.
    """

    def __init__(self, base: Mapping[str, Any], architecture: str, folder: str) -> None:
        self.options: dict[str, Any] = {}
        self.source: dict[str, str] = {"name": "", "path": "", "kind": "root"}
        where = f"kubenode_image_matrix.base {base['name']!r}: packages"
        self.findings = [f"{where}: {one}" for one in _shape(base["packages"])]
        if self.findings:
            return
        given = dict(base["packages"])
        options = {key: given.get(key) for key in _TEXTS} | {key: list(given.get(key) or []) for key in _LISTS}
        options["architecture"] = DEBIAN_NAMES.get(architecture, "amd64")  # another one is a finding of the matrix
        name = f"debian-{debian.digest(options)}"
        options["path"] = f"{folder}/{name[:32]}.tar.zst"
        self.findings = [f"{where}.{one}" for one in debian.findings(options)]
        self.options = {key: value for key, value in options.items() if value}
        self.source = {"name": name, "path": options["path"], "kind": "root"}


def _shape(given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        return ["a dictionary is needed, such as {suite: trixie}"]
    known = sorted({*_TEXTS, *_LISTS})
    found = []
    unknown = sorted(str(key) for key in set(given) - set(known))
    if unknown:
        found.append(f"unknown key {', '.join(unknown)}; there are {', '.join(known)}")
    if not given.get("suite"):
        found.append("suite is missing; give the code name of a release, such as trixie")
    for key in _TEXTS:
        if given.get(key) is not None and not isinstance(given[key], str):
            found.append(f"{key} {given[key]!r}: a text is needed")
    for key in _LISTS:
        value = given.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            found.append(f"{key}: a list of texts is needed")
    return found
