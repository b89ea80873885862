# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The status of a PreprovisioningImage: conditions, and what of it changes (pure)."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Mapping
from typing import Any

READY, ERROR = "Ready", "Error"
SUCCESS = "ImageSuccess"
CONFIGURATION_ERROR = "ConfigurationError"
MISSING_NETWORK_DATA = "MissingNetworkData"
BUILD_INVALID = "ImageBuildInvalid"
_LONGEST = 32768  # characters of a condition's message that the schema takes
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty when there is none."""
    for one in status.get("conditions") or ():
        if one.get("type") == kind:
            return one
    return {}


def with_condition(
    status: Mapping[str, Any], kind: str, value: bool, reason: str, message: str, generation: int, now: float
) -> dict[str, Any]:
    """The status with one condition set; its time of transition moves only when its value does."""
    changed = copy.deepcopy(dict(status))
    conditions = changed.setdefault("conditions", [])
    if conditions is None:
        conditions = changed["conditions"] = []
    new = {
        "type": kind,
        "status": "True" if value else "False",
        "reason": reason,
        "message": message[:_LONGEST],
        "observedGeneration": generation,
        "lastTransitionTime": told(now),
    }
    for place, old in enumerate(conditions):
        if old.get("type") == kind:
            if old.get("status") == new["status"] and old.get("lastTransitionTime"):
                new["lastTransitionTime"] = old["lastTransitionTime"]
            conditions[place] = new
            return changed
    conditions.append(new)
    return changed


def age(status: Mapping[str, Any], kind: str, now: float) -> float:
    """Seconds since the condition took its value; 0 when that is not known or in the future."""
    return max(0.0, now - moment(condition(status, kind).get("lastTransitionTime"), now))


def moment(text: Any, otherwise: float = 0.0) -> float:
    """Seconds since 1970 of a time that Kubernetes wrote; ``otherwise`` when it is none."""
    try:
        found = datetime.datetime.strptime(str(text).rstrip("Z").partition(".")[0] + "+0000", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return otherwise
    return found.timestamp()


def told(moment: float) -> str:
    """A time as Kubernetes writes it: UTC, whole seconds."""
    return datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc).strftime(_TIME)


def same(one: Any, other: Any) -> bool:
    """Whether two values say the same; what is empty counts as absent."""
    return _full(one) == _full(other)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that makes ``new`` of ``old``; lists are replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(old.get(key), Mapping):
            inner = difference(old[key], value)
            if inner:
                patch[key] = inner
        elif key not in old or old[key] != value:
            patch[key] = value
    return patch


def _full(value: Any) -> Any:
    """Without what is empty; None when nothing is left."""
    if isinstance(value, Mapping):
        inner = {key: _full(one) for key, one in value.items()}
        value = {key: one for key, one in inner.items() if one is not None}
    elif isinstance(value, (list, tuple)):
        value = [_full(one) for one in value]
    return None if value in ("", [], {}) else value
