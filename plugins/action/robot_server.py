# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the module of this name end with its run."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.plugin_utils.progress.module_progress import OwnedAction


class ActionModule(OwnedAction):
    """See the documentation of the module of the same name."""
