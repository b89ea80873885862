# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection is importable under its name, and child processes find the same sources."""

import os
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states

CHECKOUT = Path(__file__).resolve().parents[3]


def test_import_comes_from_this_checkout():
    assert Path(boot_states.__file__).resolve() == CHECKOUT / "plugins/module_utils/_common/boot_states.py"


def test_child_processes_find_this_checkout():
    entries = os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)
    found = [Path(entry) / "ansible_collections/kubenode/provision" for entry in entries]
    assert any(path.exists() and path.samefile(CHECKOUT) for path in found)
