# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pytest plugin: imports and ansible-playbook runs find the collection under its name, wherever the checkout lies.

With KUBENODE_BUILT they find what ansible-galaxy builds of the checkout and installs, instead of the checkout.
"""

import atexit
import os
import sys
import tempfile
from pathlib import Path

from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

from dev.toolchain.paths import installed_tree, linked_tree, provides_checkout

#: "yes"; the folder, as soon as it is there: for what pytest starts, too
BUILT = "KUBENODE_BUILT"


def _collection_paths() -> list[str]:
    """Entries of ANSIBLE_COLLECTIONS_PATH, ours among them."""
    entries = [entry for entry in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep) if entry]
    if built := os.environ.get(BUILT):
        return [built, *(entry for entry in entries if entry != built and not provides_checkout(entry))]
    if not any(provides_checkout(entry) for entry in entries):
        entries.insert(0, str(linked_tree()))
    return entries


def _provide() -> None:
    """Put the collection and the tools of this environment where tests and their child processes look."""
    binaries = os.path.dirname(sys.executable)
    if binaries not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join(filter(None, [binaries, os.environ.get("PATH", "")]))
    if os.environ.get(BUILT) == "yes":
        folder = tempfile.TemporaryDirectory(prefix="kubenode-built-")
        atexit.register(folder.cleanup)
        os.environ[BUILT] = str(installed_tree(Path(folder.name)))
    paths = _collection_paths()
    os.environ["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join(paths)
    if AnsibleCollectionConfig.collection_finder is None:
        _AnsibleCollectionFinder(paths=paths)._install()


_provide()
