# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What modules of a node have in common: proxies as an option, and arguments that may hold secrets deep inside.

What the environment of a task holds is on a command line for all to read, so proxies are an option."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

_VARIABLES = {"http": "http_proxy", "https": "https_proxy", "exceptions": "no_proxy"}


def proxy_option() -> dict[str, Any]:
    """The option for an argument spec."""
    return {
        "type": "dict",
        "options": {
            "http": {"type": "str", "no_log": True},
            "https": {"type": "str", "no_log": True},
            "exceptions": {"type": "str"},
        },
    }


def use_proxies(given: Mapping[str, Any] | None) -> None:
    """Let this process, and the programs that it starts, use the proxies; empty ones change nothing."""
    for name, variable in _VARIABLES.items():
        value = (given or {}).get(name)
        if value:
            os.environ[variable] = os.environ[variable.upper()] = value


class NoLogModule(AnsibleModule):
    """Does not write its arguments to the machine's log, where Ansible can hide top-level options only."""

    def _log_invocation(self) -> None:
        self.log("Invoked; the arguments are not logged, since they may hold secrets")
