# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath queries over the facts of disks; the library is needed on the controller, and only by who uses them."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.hints import HintError

try:
    import jmespath
    import jmespath.exceptions
except ImportError:  # pragma: no cover - depends on the controller
    MISSING = True
else:
    MISSING = False


def check(query: str) -> None:
    """Raise HintError when the query cannot be evaluated whatever the disks are."""
    if MISSING:
        raise HintError(
            "root_device_hints.query needs the Python package jmespath on the controller: pip install jmespath"
        )
    try:
        jmespath.compile(query)
    except jmespath.exceptions.JMESPathError as exc:
        raise HintError(f"root_device_hints.query {query!r} is no JMESPath: {_first_line(exc)}") from exc


def search(query: str, disks: list[dict[str, Any]]) -> Any:
    """What the query gives for these facts; raises HintError."""
    check(query)
    try:
        return jmespath.search(query, disks)
    except (jmespath.exceptions.JMESPathError, TypeError, ValueError, RecursionError) as exc:
        raise HintError(f"root_device_hints.query {query!r} cannot be evaluated: {_first_line(exc)}") from exc


def _first_line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
