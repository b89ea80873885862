# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of roles as Ansible templates them, on every ansible-core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

try:
    from ansible.template import trust_as_template
except ImportError:  # before 2.19, every text may be a template

    def trust_as_template(text: str) -> str:
        return text


def templated(text: str, variables: Mapping[str, Any]) -> Any:
    """What a template says of these variables, whose texts may be templates themselves."""
    return Templar(loader=DataLoader(), variables=_trusted(variables)).template(trust_as_template(text))


def _trusted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _trusted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value
