# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of the C library that Python lacks."""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)
