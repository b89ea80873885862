# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What shows that a kubeconfig of the controller cannot be used, before a machine is asked."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line

from .. import role_specs


def fault(path: str, context: Any = None) -> str:
    """What is wrong with it, as the end of a sentence that begins with its name; nothing when kubectl can read it."""
    try:
        with open(path, encoding="utf-8") as file:
            contexts, current = _read(file.read())
    except (OSError, ValueError):
        return "is no kubeconfig; name a file that kubectl can use"
    shown = f"it has {listed([one_line(name, 70) for name in contexts])}"
    if context and str(context) not in contexts:
        return f"has no context {str(context)!r:.70}; {shown}"
    if not context and current not in contexts:
        return f"has no current context; {shown}; name one of them"
    return ""


@functools.lru_cache(maxsize=8)
def _read(text: str) -> tuple[list[str], str]:
    """The names of its contexts, and the current one; raise ValueError for a text that is no kubeconfig."""
    config = role_specs.yaml_value(text)
    if not isinstance(config, Mapping) or not isinstance(config.get("clusters"), list):
        raise ValueError("no clusters")
    contexts = config.get("contexts")
    names = [str(one["name"]) for one in contexts or [] if isinstance(one, Mapping) and "name" in one]
    if not names:
        raise ValueError("no contexts")
    return names, str(config.get("current-context") or "")
