# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""NMState documents become NetworkManager keyfiles, without NetworkManager, nmstatectl or the host (pure)."""

from __future__ import annotations

from .conversion import Profiles, convert, keyfiles, with_nmstatectl
from .document import parse

__all__ = ["Profiles", "convert", "keyfiles", "parse", "with_nmstatectl"]
