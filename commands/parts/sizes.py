# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes that several parts agree on."""

from __future__ import annotations

MIB = 1 << 20
CHUNK = MIB  # what is read from the network at once
BLOCK = 4 * MIB  # what is written at once
