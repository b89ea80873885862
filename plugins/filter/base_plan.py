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

from ansible_collections.kubenode.provision.plugins.plugin_utils.lazy_import import LazyModule

_PLAN = "module_utils._node.base."
artifacts = LazyModule(_PLAN + "artifacts")
images = LazyModule(_PLAN + "images")
judgement = LazyModule(_PLAN + "judgement")
queries = LazyModule(_PLAN + "queries")
repositories = LazyModule(_PLAN + "repositories")
settings = LazyModule(_PLAN + "settings")
steps = LazyModule(_PLAN + "steps")
variables_of_base = LazyModule(_PLAN + "inputs")

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
        return {**variables_of_base.normalised(variables, versions), "collection": _collection()}
    except ValueError as error:
        if fail:
            raise
        return {"refused": str(error)}


@_told
def base_judgement(node: Facts, inputs: Facts, steps: Sequence[str], before: float | None = None) -> dict[str, Any]:
    after = time.time()
    return judgement.judgement(node, inputs, steps, after if before is None else float(before), after)


@_told
def base_repositories(node: Facts, inputs: Facts) -> list[dict[str, Any]]:
    return [dict(item) for item in repositories.repositories(node, inputs)]


@_told
def base_artifacts(node: Facts, inputs: Facts) -> list[dict[str, Any]]:
    return artifacts.artifacts(node, inputs)


@_told
def base_settings(node: Facts, inputs: Facts, step: str | list[str] | None = None) -> list[dict[str, Any]]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [dict(item) for item in settings.settings(node, {**inputs, "at": now}, step)]


@_told
def base_secrets(node: Facts, inputs: Facts) -> dict[str, str]:
    return settings.secrets(node, inputs)


@_told
def base_queries(inputs: Facts, joins: bool = False) -> dict[str, Any]:
    return queries.queries(inputs, joins)


@_told
def base_steps(inputs: Facts, run_tags: Sequence[str] = ("all",), skip_tags: Sequence[str] = ()) -> list[str]:
    return steps.steps(inputs, run_tags, skip_tags)


@_told
def base_images(node: Facts, inputs: Facts) -> dict[str, list]:
    return images.images(node, inputs)


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
