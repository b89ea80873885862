# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role base as filters; each is documented in the file of its name beside this one."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.plugin_utils._late import Late

_PLAN = "plugin_utils.node_plan."
inputs_ = Late(_PLAN + "base_inputs")
plan = Late(_PLAN + "base_plan")
downloads = Late(_PLAN + "downloads")
packages = Late(_PLAN + "packages")
preflight = Late(_PLAN + "preflight")

Facts = Mapping[str, Any]
_ROOT = Path(__file__).parents[2]


@functools.cache
def _collection() -> str:
    """Version of this collection: built ones have a manifest, a checkout has galaxy.yml."""
    manifest = _ROOT / "MANIFEST.json"
    if manifest.exists():
        return json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"]
    source = _ROOT / "galaxy.yml"
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    found = re.search(r"^version: *(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _told(function: Callable) -> Callable:
    """Errors of the plan as errors of the filter, with their text alone."""

    @functools.wraps(function)
    def filtered(first, *rest, **named):
        if not isinstance(first, Mapping):
            raise AnsibleFilterError("%s: feed it a dictionary, not a %s" % (function.__name__, type(first).__name__))
        try:
            return function(first, *rest, **named)
        except (ValueError, KeyError) as error:
            text = "%s is missing in what it was given" % error if isinstance(error, KeyError) else str(error)
            raise AnsibleFilterError("%s: %s" % (function.__name__, text)) from error

    return filtered


@_told
def base_inputs(variables: Facts, versions: Facts, fail: bool = True) -> dict[str, Any]:
    try:
        return {**inputs_.normalised(variables, versions), "collection": _collection()}
    except ValueError as error:
        if fail:
            raise
        return {"refused": str(error)}


@_told
def base_judgement(node: Facts, inputs: Facts, steps: Sequence[str], before: float | None = None) -> dict[str, Any]:
    after = time.time()
    return preflight.preflight(node, inputs, steps, after if before is None else float(before), after)


@_told
def base_repositories(node: Facts, inputs: Facts) -> list[dict[str, Any]]:
    return [dict(item) for item in packages.repositories(node, inputs)]


@_told
def base_artifacts(node: Facts, inputs: Facts) -> list[dict[str, Any]]:
    return downloads.artifacts(node, inputs)


@_told
def base_settings(node: Facts, inputs: Facts, step: str | list[str] | None = None) -> list[dict[str, Any]]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [dict(item) for item in plan.settings(node, {**inputs, "at": now}, step)]


@_told
def base_secrets(node: Facts, inputs: Facts) -> dict[str, str]:
    return plan.secrets(node, inputs)


@_told
def base_queries(inputs: Facts, joins: bool = False) -> dict[str, Any]:
    return plan.queries(inputs, joins)


@_told
def base_steps(inputs: Facts, run_tags: Sequence[str] = ("all",), skip_tags: Sequence[str] = ()) -> list[str]:
    return plan.steps(inputs, run_tags, skip_tags)


@_told
def base_images(node: Facts, inputs: Facts) -> dict[str, list]:
    return downloads.images(node, inputs)


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {
            "base_inputs": base_inputs,
            "base_judgement": base_judgement,
            "base_repositories": base_repositories,
            "base_artifacts": base_artifacts,
            "base_settings": base_settings,
            "base_secrets": base_secrets,
            "base_queries": base_queries,
            "base_steps": base_steps,
            "base_images": base_images,
        }
