# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The functions that only the playbooks and roles of this collection call, by their names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.filter import internal
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import builds

CHECKOUT = Path(__file__).resolve().parents[3]


def test_playbooks_and_roles_call_all_functions_and_no_others():
    texts = [
        path.read_text(encoding="utf-8") for top in ("playbooks", "roles") for path in (CHECKOUT / top).rglob("*.yml")
    ]
    called = {name for text in texts for name in re.findall(r"kubenode\.provision\.internal\('(\w+)'", text)}
    # surveys are for those who set up AWX
    assert called == set(internal.FUNCTIONS) - {"survey"}


def test_a_finding_is_an_error_of_the_filter():
    with pytest.raises(AnsibleFilterError, match="feed it a dictionary with matrix"):
        internal.internal(None, "node_image_builds")
    with pytest.raises(AnsibleFilterError, match="use delete or release"):
        internal.internal([], "leave_plan", "remove")


def test_builds_are_of_this_version_and_by_default_of_this_user():
    inputs = {"matrix": {"kubernetes": ["1.36.4"], "base": ["debian-13"]}, "server_types": {"x86": "cx23"}}
    (found,) = internal.internal(inputs, "node_image_builds")
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+\S*", found["snapshot"]["role_version"])
    (named,) = internal.internal({**inputs, "owner": "tests"}, "node_image_builds")
    assert named["machine"] == builds.machine_name("tests", named["name"], "x86") != found["machine"]


# --- filter files import their plans when a filter is called, since ansible-core imports all files for any one filter


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
    assert {name for name in modules if name.startswith("plugin_utils.")} == set()
