# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of a first boot: checked together, so that one error names everything that is wrong (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from . import role_variables, values
from .plan_types import UserData

PHASES = ("all", "base", "join")


class InputError(Exception):
    """Inputs that no machine should be started with; the text has one line for each key."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is {value!r}; it must be true or false")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError(f"is {value!r}; it must be a whole number from 1 to 1000")
    return value


def _phase(value: Any) -> str:
    if not isinstance(value, str) or value not in PHASES:
        raise ValueError(f"is {value!r}; choose one of {', '.join(PHASES)}")
    return value


def _source(value: Any) -> tuple[str, str]:
    return values.source(_text(value))


def _keys(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of public SSH keys")
    return [values.ssh_key(_text(key)) for key in value]


def _user(value: Any) -> str:
    if not isinstance(value, str) or not value.isidentifier() or not value.isascii():
        raise ValueError(f"is {value!r}; it must be a user's name")
    return value


def _variables(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a dictionary of variables of the roles base and join")
    for name in value:
        if not isinstance(name, str) or not name.startswith(("base_", "join_")):
            raise ValueError(f"has {name!r}; variables of the roles begin with base_ or join_")
    for part in ("base_http_proxy", "base_https_proxy"):
        try:
            values.proxy(value.get(part) or "")
        except (TypeError, ValueError):
            raise ValueError(f"has a {part} that is no http or https URL") from None
    excluded = value.get("base_no_proxy") or ""
    words = excluded if isinstance(excluded, (list, tuple)) else [excluded]
    if not all(isinstance(word, str) and word.isprintable() for word in words):
        raise ValueError("has a base_no_proxy that is no text of one line")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("holds something that JSON does not know; use text, numbers, lists and dictionaries") from None
    return value


def _checked(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: check(_text(value))


#: key → (check that returns the value normalised, default)
KEYS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "provision_source": (_source, None),
    "phase": (_phase, "all"),
    "prebake": (_flag, False),
    "hostname": (_checked(values.hostname), None),
    "ssh_authorized_keys": (_keys, []),
    "ssh_user": (_user, "core"),
    "kubelet_version": (_checked(values.version), None),
    "cloud_provider": (_checked(values.cloud_provider), None),
    "cloud_config": (_text, None),
    "token": (_checked(values.token), None),
    "ca_cert": (_checked(values.certificates), None),
    "api_server": (_checked(values.api_server), None),
    "vars": (_variables, {}),
    "source_ca": (_checked(values.certificates), None),
    "python_source": (_source, None),
    "attempts": (_number, 10),
    "pause": (_number, 10),
}


def normalised(inputs: Any) -> UserData:
    """Every key with its value or default; InputError names each key that is unknown, missing or wrong."""
    if not isinstance(inputs, dict):
        raise InputError("the inputs must be a dictionary")
    result: dict[str, Any] = {}
    errors = []
    for name in sorted(set(map(str, inputs)) - set(KEYS)):
        errors.append(f"{name}: is no input; there are {', '.join(KEYS)}")
    for name, (check, default) in KEYS.items():
        value = inputs.get(name)
        # empty text means the same as a key that is left out, since templates often give it
        if value is None or (value == "" and name != "cloud_provider"):
            result[name] = default
            continue
        try:
            result[name] = check(value)
        except ValueError as error:
            errors.append(f"{name}: {error}")
    if not errors:
        taken = cast(UserData, result)
        errors = _together(taken) or role_variables.findings(variables(taken), running(taken))
        if not errors:
            return taken
    raise InputError("\n".join(errors))


def _together(inputs: UserData) -> list[str]:
    """What is wrong about inputs that are right one by one."""
    errors = []
    if inputs.get("provision_source") is None:
        errors.append("provision_source: is missing; give URL#sha256=DIGEST of the program (make provision prints it)")
    if inputs["prebake"]:
        if inputs["phase"] == "join":
            errors.append("prebake: ends after base, but phase is join; leave one of them out")
        inputs["phase"] = "base"
    if inputs["phase"] != "base" and not (inputs["api_server"] or inputs["vars"].get("join_api_server")):
        errors.append(f"api_server: is missing; phase {inputs['phase']} joins a cluster: https://host:6443")
    return errors


#: key → the variable of a role that it becomes
_BECOMES = {
    "kubelet_version": "base_kubernetes_version",
    "api_server": "join_api_server",
    "ca_cert": "join_ca_cert",
    "cloud_provider": "join_cloud_provider",
    "token": "join_token",
}


def variables(inputs: UserData) -> dict[str, Any]:
    """The variables of the roles that the machine will have."""
    given: Mapping[str, Any] = inputs
    return {**inputs["vars"], **{name: given[key] for key, name in _BECOMES.items() if given[key] is not None}}


def running(inputs: UserData) -> tuple[str, ...]:
    """The roles that the machine will run."""
    return role_variables.ROLES if inputs["phase"] == "all" else (inputs["phase"],)
