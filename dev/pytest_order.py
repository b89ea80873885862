# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The longest tests begin first, so that no worker is left alone with one of them at the end."""

from __future__ import annotations

import pytest

LONG = ("qemu", "cluster", "molecule")  # markers, longest first


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with whole virtual machines, then those with a control plane, then molecule's; each file as it was."""
    rank: dict[object, int] = {}
    for item in items:
        found = [place for place, name in enumerate(LONG) if item.get_closest_marker(name)]
        rank[item.path] = min([*found, rank.get(item.path, len(LONG))])
    items.sort(key=lambda item: rank[item.path])
