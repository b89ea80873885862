# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pytest plugin: imports and ansible-playbook runs find the collection under its name, wherever the checkout lies."""

import os
import sys

from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

from dev.toolchain.paths import linked_tree, provides_checkout


def _collection_paths() -> list[str]:
    """Entries of ANSIBLE_COLLECTIONS_PATH, ours among them."""
    entries = [entry for entry in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep) if entry]
    if not any(provides_checkout(entry) for entry in entries):
        entries.insert(0, str(linked_tree()))
    return entries


def _provide() -> None:
    """Put the collection and the tools of this environment where tests and their child processes look."""
    paths = _collection_paths()
    os.environ["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join(paths)
    binaries = os.path.dirname(sys.executable)
    if binaries not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join(filter(None, [binaries, os.environ.get("PATH", "")]))
    if AnsibleCollectionConfig.collection_finder is None:
        _AnsibleCollectionFinder(paths=paths)._install()


_provide()
