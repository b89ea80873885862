# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Node cluster_node takes for the machine's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.modules.cluster_node import is_of_another


def node(machine_id):
    info = None if machine_id is None else SimpleNamespace(machine_id=machine_id)
    return SimpleNamespace(status=SimpleNamespace(node_info=info))


@pytest.mark.parametrize(
    ("registered", "given", "another"),
    [("a", "a", False), ("a", "b", True), ("", "b", True), (None, "b", True), ("a", "", False), (None, "", False)],
)
def test_a_node_is_deleted_only_when_it_is_the_machines(registered, given, another):
    assert is_of_another(node(registered), given) is another


def test_a_node_without_status_is_nobodys():
    assert is_of_another(SimpleNamespace(status=None), "b")
