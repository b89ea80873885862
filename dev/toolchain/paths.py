# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things lie: the checkout, and the cache outside of it that everything can be made again from."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
REQUIREMENTS = CHECKOUT / "requirements"
NAMESPACE, NAME = "kubenode", "provision"


def cache() -> Path:
    """The cache folder: KUBENODE_CACHE, else kubenode-provision below the XDG cache."""
    named = os.environ.get("KUBENODE_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kubenode-provision"


def checkout_id() -> str:
    """Distinguishes several checkouts that share one cache."""
    return hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]
