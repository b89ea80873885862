# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kind of machine a host gets, and the message when it can have none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.machines.backend import KINDS, best_kind, open_backend


def test_best_kind_is_one_that_can_be_opened_and_says_why() -> None:
    kind, reason = best_kind()
    assert kind in KINDS
    assert reason
    if os.geteuid() != 0:
        assert kind == "dry"
        assert "root" in reason


@pytest.mark.root
def test_error_on_a_host_without_programs_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match="apt-get install systemd-container dnsmasq-base iproute2"):
        best_kind()


@pytest.mark.root
async def test_missing_programs_are_named_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match=r"lacks .*nsenter.*systemd-nspawn.*apt-get install .*systemd-container"):
        await open_backend("nspawn", "test", tmp_path)
    assert list(tmp_path.iterdir()) == []
