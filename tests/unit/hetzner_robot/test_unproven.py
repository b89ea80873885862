# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers whose finished system shows no more than an open port, or nothing."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import boot_decision as decision
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_decision import ObservedState
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import SILENT, Answer


def seen(answer, **more):
    """A dedicated server."""
    return ObservedState(answer=answer, **more)


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (seen(decision.SILENT, unproven="port", listens=True), decision.LEAVE),
        (seen(decision.DENIED, unproven="port", listens=True), decision.LEAVE),
        (seen(decision.SILENT, unproven="port"), decision.REFUSE_SILENT),
        (seen(decision.SILENT, unproven="port", may_reset=True), decision.REFUSE_SILENT),
        (seen(decision.SILENT, unproven="none"), decision.ASK_POWER),
        (seen(decision.SILENT, unproven="none", off=False), decision.LEAVE),
        (seen(decision.SILENT, unproven="none", off=True), decision.REFUSE_SILENT),
        (seen(decision.DENIED, unproven="none", may_reset=True), decision.LEAVE),
        (seen(decision.DENIED, unproven="none", reinstall=True), decision.ARM_AND_RESET),
        (seen(decision.RESCUE, unproven="none", intended=""), decision.REFUSE_RESCUE),
        (seen(decision.INSTALLED, unproven="none"), decision.LEAVE),
    ],
)
def test_it_is_left_alone_or_refused_but_never_reset(state, step):
    assert decision.towards_rescue(state) == step


@pytest.mark.parametrize(
    ("detail", "listens"),
    [
        ("ssh: connect to host 192.0.2.1 port 22: Connection refused", False),
        ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", False),
        ("ssh: connect to host 192.0.2.1 port 22: No route to host", False),
        ("kex_exchange_identification: read: Connection reset by peer", True),
        ("banner exchange: Connection to 192.0.2.1 port 50000: invalid format", True),
        ("Connection timed out during banner exchange", True),
        ("Connection closed by 192.0.2.1 port 22", True),
    ],
)
def test_what_speaks_no_ssh_listens_all_the_same(detail, listens):
    assert Answer(SILENT, detail).listens is listens
