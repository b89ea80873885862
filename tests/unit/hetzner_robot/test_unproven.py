# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers whose finished system shows no more than an open port, or nothing."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_decision
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_decision import Sight
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import SILENT, Answer


@pytest.mark.parametrize(
    ("sight", "step"),
    [
        (Sight(robot_decision.SILENT, unproven="port", listens=True), robot_decision.LEAVE),
        (Sight(robot_decision.DENIED, unproven="port", listens=True), robot_decision.LEAVE),
        (Sight(robot_decision.SILENT, unproven="port"), robot_decision.REFUSE_SILENT),
        (Sight(robot_decision.SILENT, unproven="port", may_reset=True), robot_decision.REFUSE_SILENT),
        (Sight(robot_decision.SILENT, unproven="none"), robot_decision.ASK_POWER),
        (Sight(robot_decision.SILENT, unproven="none", off=False), robot_decision.LEAVE),
        (Sight(robot_decision.SILENT, unproven="none", off=True), robot_decision.REFUSE_SILENT),
        (Sight(robot_decision.DENIED, unproven="none", may_reset=True), robot_decision.LEAVE),
        (Sight(robot_decision.DENIED, unproven="none", reinstall=True), robot_decision.ARM_AND_RESET),
        (Sight(robot_decision.RESCUE, unproven="none", intended=False), robot_decision.REFUSE_RESCUE),
        (Sight(robot_decision.INSTALLED, unproven="none"), robot_decision.LEAVE),
    ],
)
def test_it_is_left_alone_or_refused_but_never_reset(sight, step):
    assert robot_decision.towards_rescue(sight) == step


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
