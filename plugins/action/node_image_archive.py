# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows how the file grows that a machine sends to the controller, while the module of this name runs there."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.plugin_utils.progress.module_progress import GrowingFile


class ActionModule(GrowingFile):
    """See the documentation of the module of the same name."""

    def _growing(self) -> str:
        path = self._task.args.get("arrives_at")
        return f"{path}.partial" if path else ""

    def _words(self) -> tuple[str, str]:
        name = self._task.args.get("name") or "the image"
        return f"looks through what goes into {name}", f"packs {name}"
