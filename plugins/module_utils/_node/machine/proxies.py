# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Proxies of a module, as an option: what the ``environment`` of a task holds is on a command line for all to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

_VARIABLES = {"http": "http_proxy", "https": "https_proxy", "exceptions": "no_proxy"}


def option() -> dict[str, Any]:
    """The option for an argument spec."""
    return {
        "type": "dict",
        "options": {
            "http": {"type": "str", "no_log": True},
            "https": {"type": "str", "no_log": True},
            "exceptions": {"type": "str"},
        },
    }


def use(given: Mapping[str, Any] | None) -> None:
    """Let this process, and the programs that it starts, use the proxies; empty ones change nothing."""
    for name, variable in _VARIABLES.items():
        value = (given or {}).get(name)
        if value:
            os.environ[variable] = os.environ[variable.upper()] = value
