# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``kubelet``: what the zip application starts."""

from __future__ import annotations

import sys

from lab.kubelet.app.main import main

sys.exit(main(sys.argv[1:]))
