# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter files import their plans when a filter is called, since ansible-core imports all files for any one filter."""

from __future__ import annotations

import json
import subprocess
import sys

PLUGINS = "ansible_collections.kubenode.provision.plugins."
LOADING = """
import json, sys
from ansible.plugins.loader import filter_loader, init_plugin_loader
init_plugin_loader()
assert filter_loader.get("kubenode.provision.internal") is not None
print(json.dumps(sorted(sys.modules)))
"""


def test_loading_filters_imports_no_plan():
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=True)
    modules = {name[len(PLUGINS) :] for name in json.loads(done.stdout.splitlines()[-1]) if name.startswith(PLUGINS)}
    assert len([name for name in modules if name.startswith("filter.")]) >= 6
    assert {name for name in modules if name.startswith("module_utils.")} == set()
    assert {name for name in modules if name.startswith("plugin_utils.")} <= {"plugin_utils.plain"}
