# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as Python knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def plain(value: Any) -> Any:
    """Without Ansible's tags and lazy containers, which YAML and the checks do not know."""
    if isinstance(value, Mapping):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return _text(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _text(value: str) -> str:
    # a text of a result is, before ansible-core 2.19, also after str() one of Ansible's
    return str.__str__(value)


def yaml_value(text: str) -> Any:
    """What a YAML text says; ValueError, and nothing else, for a text that is none."""
    try:
        # libyaml's loader ends the process when a text is nested too deeply
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
