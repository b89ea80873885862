# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules of this collection that are imported when they are first used.

For any one filter, ansible-core imports every filter file of a collection, again in each worker, and compiles all that
these files import. If they imported the plans themselves, that would be a fifth of a second for each task.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_PLUGINS = __name__.rpartition(".plugin_utils.")[0]


class LazyModule:
    """``LazyModule("module_utils._node.base.steps").steps`` imports that module now, and is its function.

    Raises ImportError there, when there is no such module.
    """

    def __init__(self, module: str) -> None:
        """``module``: its name below ``plugins``."""
        self._module = f"{_PLUGINS}.{module}"

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)

    def function(self, name: str) -> Callable[..., Any]:
        """One of the module's functions, to be handed on before the module is imported."""

        def called(*given: Any, **named: Any) -> Any:
            return getattr(self, name)(*given, **named)

        return called
