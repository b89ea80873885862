# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The in-rescue runner, as the controller sends it."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

_PATH = Path(protocol.__file__).with_name("runner.sh")


def runner_text() -> str:
    """The program."""
    return _PATH.read_text(encoding="utf-8")
