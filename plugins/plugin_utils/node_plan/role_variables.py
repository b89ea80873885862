# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of the roles base and join, checked without the machine by the same rules as in the roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import wrong_value

from .. import role_specs
from . import base_inputs, join_inputs
from .base_inputs import PlanError
from .kubelet import KubeletOptions
from .kubelet_config import nearest

ROLES = ("base", "join")


def findings(variables: Mapping[str, Any], running: Iterable[str]) -> list[str]:
    """A line for each of ``variables`` that is refused, as far as that needs no machine.

    ``running``: the roles that will run; variables of others need only be there and be of their type.
    """
    known, texts, good = role_specs.variables(*ROLES), [], {}
    for name, value in sorted(variables.items()):
        option = known.get(name)
        # a dictionary in the wrong place may be one with a password in it
        option = dict(option, no_log=True) if option and option.get("type") == "dict" else option
        wrong = wrong_value(option, value) if option and value is not None else ""
        if option is None:
            texts.append(f"vars: has {name!r}, which is no variable of the roles{nearest(name, known)}")
        elif wrong:
            texts.append(f"{name} is {wrong}")
        else:
            good[name] = value
    version = ""
    if "base" in running:
        given = {name: value for name, value in good.items() if name.startswith("base_")}
        try:
            inputs = base_inputs.normalised(given, role_specs.versions())
            version = inputs["kubernetes_version"] if inputs["manage_kubelet"] else ""
        except PlanError as error:
            texts += str(error).splitlines()
    if "join" in running:
        try:
            _check_join(good, version)
        except join_inputs.InvalidInput as error:
            texts.append(str(error))
    return texts


def _check_join(variables: Mapping[str, Any], version: str) -> None:
    given = {name.removeprefix("join_"): value for name, value in variables.items() if name.startswith("join_")}
    token = str(given.pop("token", None) or "")
    inputs = join_inputs.checked(join_inputs.with_drop_ins(given), token)
    join_inputs.check_one_token(inputs, token)
    if version and inputs["state"] == "present":
        KubeletOptions(inputs, version).check()
