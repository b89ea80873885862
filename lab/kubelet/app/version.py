# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kubelet this is; ``lab.kubelet.build`` writes the wanted version here."""

from __future__ import annotations

VERSION = "1.36.4"
MINOR = ".".join(VERSION.split(".")[:2])
