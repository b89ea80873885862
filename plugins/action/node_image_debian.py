# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows how the archive grows while the module of this name runs on the controller."""

from __future__ import annotations

import os

from ansible_collections.kubenode.provision.plugins.plugin_utils.progress.module_progress import GrowingFile


class ActionModule(GrowingFile):
    """See the documentation of the module of the same name."""

    def _growing(self) -> str:
        path = self._task.args.get("path")
        if not path or str(getattr(self._connection, "_load_name", "")).rpartition(".")[2] != "local":
            return ""
        folder, name = os.path.split(os.path.abspath(os.path.expanduser(str(path))))
        return os.path.join(folder, f".partial-{name}")

    def _words(self) -> tuple[str, str]:
        suite = self._task.args.get("suite")
        return f"mmdebstrap installs the packages of {suite}", f"mmdebstrap packs {suite}"
