# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the program `provision` has of ansible-core's own routes."""

from __future__ import annotations

from pathlib import Path

import ansible
import yaml

from dev.toolchain.provision import without_routes_elsewhere

ROUTES = Path(ansible.__path__[0]) / "config/ansible_builtin_runtime.yml"


def test_only_routes_to_collections_that_are_not_inside_are_gone():
    before = yaml.safe_load(ROUTES.read_bytes())
    slim = without_routes_elsewhere(ROUTES.read_bytes())
    after = yaml.safe_load(slim)
    assert len(slim) < 20_000 < ROUTES.stat().st_size
    assert {name: value for name, value in after.items() if name != "plugin_routing"} == {
        name: value for name, value in before.items() if name != "plugin_routing"
    }
    assert after["plugin_routing"].keys() == before["plugin_routing"].keys()
    for kind, routes in before["plugin_routing"].items():
        left = after["plugin_routing"][kind]
        assert left.items() <= routes.items()
        for name in routes.keys() - left.keys():
            assert routes[name].keys() == {"redirect"}
            assert not routes[name]["redirect"].startswith("ansible.builtin.")
