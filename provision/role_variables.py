# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the command line → variables of the roles base and join; typed by the roles' own argument specs."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from provision import UsageError

TOKEN_VARIABLE = "PROVISION_TOKEN"
_LARGEST = 4 * 1024 * 1024


def gather(chosen: argparse.Namespace) -> dict[str, Any]:
    """The variables of a run: files first, then --set, then the options of their own; UsageError when one is wrong."""
    known = role_specs.variables(*user_data.ROLES)
    result: dict[str, Any] = {}
    for name in chosen.files:
        result.update(_from_file(name, known))
    for text in chosen.values:
        name, value = _assignment(text, known)
        result[name] = value
    result.update(_options(chosen))
    if chosen.prebake:
        result["base_prebake"] = True
    if chosen.phase != "base" and not result.get("join_api_server"):
        raise UsageError(
            f"--phase {chosen.phase} joins a cluster: name its API server by --api-server https://host:6443"
        )
    _refuse(result, user_data.ROLES if chosen.phase == "all" else (chosen.phase,))
    return result


def _refuse(variables: Mapping[str, Any], running: Sequence[str]) -> None:
    """Refuse what the roles would refuse, before anything is done, as no second try helps against it."""
    name = variables.get("join_ca_file")
    if "join" in running and isinstance(name, str) and name and not variables.get("join_ca_cert"):
        text = _checked(f"join_ca_file {name}", user_data.certificates, _read("join_ca_file", name))
        variables = {**variables, "join_ca_cert": text}
    refused = user_data.findings(variables, running)
    if refused:
        raise UsageError("\n".join(refused))


def _options(chosen: argparse.Namespace) -> dict[str, Any]:
    """What the options with a name of their own say."""
    result: dict[str, Any] = {}
    if chosen.kubelet_version is not None:
        result["base_kubernetes_version"] = _checked("--kubelet-version", user_data.version, chosen.kubelet_version)
    if chosen.cloud_provider is not None:
        result["join_cloud_provider"] = _checked("--cloud-provider", user_data.cloud_provider, chosen.cloud_provider)
    if chosen.api_server is not None:
        result["join_api_server"] = _checked("--api-server", user_data.api_server, chosen.api_server)
    if chosen.ca_cert is not None:
        text = _read("--ca-cert", chosen.ca_cert)
        result["join_ca_cert"] = _checked(f"--ca-cert {chosen.ca_cert}", user_data.certificates, text)
    if chosen.cloud_config is not None:
        _read("--cloud-config", chosen.cloud_config)
    token = _token(chosen)
    if token is not None:
        result["join_token"] = token
    return result


def _token(chosen: argparse.Namespace) -> str | None:
    """The bootstrap token, from the first place that has it; --token was put into the environment by now."""
    if chosen.token_file is not None:
        return _checked(f"--token-file {chosen.token_file}", user_data.token, _read("--token-file", chosen.token_file))
    if os.environ.get(TOKEN_VARIABLE):
        return _checked(f"--token or {TOKEN_VARIABLE}", user_data.token, os.environ[TOKEN_VARIABLE])
    return None


def _checked(name: str, check: Callable[[str], str], value: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None


def _read(option: str, name: str) -> str:
    """A file the user named, - for standard input where that makes sense."""
    try:
        if name == "-" and option == "--token-file":
            return sys.stdin.read(_LARGEST)
        path = Path(name)
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise UsageError(f"{option} {name} is larger than {_LARGEST >> 20} MiB: name the right file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{option} {name} is no text (UTF-8): name the right file") from None


def _from_file(name: str, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    option = f"--vars {name}"
    try:
        # PyYAML reads JSON's surrogate pairs as two characters
        loaded = (json.loads if name.endswith(".json") else yaml.safe_load)(_read("--vars", name))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        # the text around the error may be a secret, so the message has only its place
        raise UsageError(f"{option}{where}: this is no YAML or JSON") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(f"{option}: must be a dictionary of variables (base_…, join_…)")
    for key in loaded:
        _known(option, str(key), known)
    return loaded


def _assignment(text: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, Any]:
    """NAME=VALUE with the value in the variable's type."""
    name, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--set {name} has no value: write --set NAME=VALUE")
    spec = _known("--set", name, known)
    if spec.get("no_log"):
        raise UsageError(f"--set {name} is a secret, which the process list would show: put it into a file for --vars")
    kind = spec.get("type", "str")
    if kind in ("str", "raw", "path"):
        return name, value
    try:
        parsed = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        parsed = value
    wanted: Any = {"bool": bool, "int": int, "float": (int, float), "list": list, "dict": dict}[kind]
    if not isinstance(parsed, wanted) or (kind != "bool" and isinstance(parsed, bool)):
        raise UsageError(f"--set {name} is {value!r}; it must be a {kind} (YAML)")
    return name, parsed


def _known(option: str, name: str, known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "the variables are those of the roles base and join"
    raise UsageError(f"{option}: {name!r} is no variable: {hint}")
