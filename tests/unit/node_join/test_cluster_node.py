# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Node is taken for the machine's own."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node.join.cluster import is_own


def node(machine_id, provider_id="", *addresses):
    info = {} if machine_id is None else {"nodeInfo": {"machineID": machine_id}}
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    return {"spec": {"providerID": provider_id}, "status": {**info, "addresses": listed}}


@pytest.mark.parametrize(
    ("registered", "given", "own"),
    [("a", "a", True), ("a", "b", False), ("", "b", False), (None, "b", False), ("a", "", True), (None, "", True)],
)
def test_the_machine_id_decides_where_it_is_known(registered, given, own):
    assert is_own(node(registered), given) is own
    # although all else would fit
    fits = node(registered, "hcloud://1", ("InternalIP", "192.0.2.1"))
    assert is_own(fits, given, "hcloud://1", ["192.0.2.1"]) is own


@pytest.mark.parametrize(
    ("provider_id", "address", "own"),
    [
        ("hcloud://1", ("InternalIP", "192.0.2.9"), True),
        ("hcloud://2", ("InternalIP", "192.0.2.1"), False),
        ("", ("ExternalIP", "192.0.2.1"), True),
        ("", ("Hostname", "192.0.2.1"), False),
        ("", ("InternalIP", "192.0.2.9"), False),
    ],
)
def test_a_silent_machine_is_known_by_provider_id_else_by_an_address(provider_id, address, own):
    assert is_own(node("a", provider_id, address), "", "hcloud://1", ["192.0.2.1"]) is own


def test_a_node_without_status_is_nobodys():
    assert not is_own({"metadata": {}}, "b")
    assert not is_own({"metadata": {}}, "", "hcloud://1", ["192.0.2.1"])
