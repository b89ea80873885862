# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PreprovisioningImages and Secrets as JSON: conditions, what of a status changes, whose a Secret is (pure)."""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import times
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError

READY, ERROR = "Ready", "Error"
SUCCESS = "ImageSuccess"
CONFIGURATION_ERROR = "ConfigurationError"
MISSING_NETWORK_DATA = "MissingNetworkData"
BUILD_INVALID = "ImageBuildInvalid"
_LONGEST_MESSAGE = 32768  # characters of a condition's message that the schema takes
LABEL, LABEL_VALUE = "environment.metal3.io", "baremetal"  # only Secrets with it are watched
API_VERSION, KIND = "metal3.io/v1alpha1", "PreprovisioningImage"
_NMSTATE_KEY = "nmstate"


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty when there is none."""
    found: Mapping[str, Any] = next((one for one in status.get("conditions") or () if one.get("type") == kind), {})
    return found


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
        "message": message[:_LONGEST_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": times.to_whole_seconds(now),
    }
    for place, old in enumerate(conditions):
        if old.get("type") == kind:
            if old.get("status") == new["status"] and old.get("lastTransitionTime"):
                new["lastTransitionTime"] = old["lastTransitionTime"]
            conditions[place] = new
            return changed
    conditions.append(new)
    return changed


def condition_age(status: Mapping[str, Any], kind: str, now: float) -> float:
    """Seconds since the condition took its value; 0 when that is not known or in the future."""
    return max(0.0, now - unix_time(condition(status, kind).get("lastTransitionTime"), now))


def unix_time(text: Any, otherwise: float = 0.0) -> float:
    """Seconds since 1970 of a time that Kubernetes wrote; ``otherwise`` when it is none."""
    found = times.moment(text)
    return otherwise if found is None else float(int(found))


def same_values(one: Any, other: Any) -> bool:
    """Whether two values say the same; what is empty counts as absent."""
    return bool(_not_empty(one) == _not_empty(other))


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


def _not_empty(value: Any) -> Any:
    """Without what is empty; None when nothing is left."""
    if isinstance(value, Mapping):
        inner = {key: _not_empty(one) for key, one in value.items()}
        value = {key: one for key, one in inner.items() if one is not None}
    elif isinstance(value, (list, tuple)):
        value = [_not_empty(one) for one in value]
    return None if value in ("", [], {}) else value


def claimed_secret(secret: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Secret with our label and the owner's reference; None when it has both.

    A label of another value stays. A reference as controller, as earlier versions wrote it, becomes a plain one.
    """
    new = copy.deepcopy(dict(secret))
    metadata = new.setdefault("metadata", {})
    labels = dict(metadata.get("labels") or {})
    labels.setdefault(LABEL, LABEL_VALUE)
    reference = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    references = list(metadata.get("ownerReferences") or ())
    for place, old in enumerate(references):
        if _is_for(old, reference):
            if old.get("uid") != reference["uid"] or old.get("controller"):
                references[place] = reference
            break
    else:
        references.append(reference)
    if labels == metadata.get("labels") and references == metadata.get("ownerReferences"):
        return None
    metadata["labels"], metadata["ownerReferences"] = labels, references
    return new


def secret_owners(secret: Mapping[str, Any]) -> list[str]:
    """The names of the images that have claimed it."""
    references = (secret.get("metadata") or {}).get("ownerReferences") or ()
    return [str(one.get("name")) for one in references if _is_for(one, {"kind": KIND, "name": one.get("name")})]


def network_data(data: Mapping[str, str]) -> str:
    """The NMState document; "" when the Secret is empty: the host gets its addresses by DHCP."""
    if not data:
        return ""
    if _NMSTATE_KEY not in data:
        raise ImageError(f"network data Secret provided but missing required '{_NMSTATE_KEY}' key")
    try:
        return base64.b64decode(data[_NMSTATE_KEY] or "", validate=True).decode("utf-8")
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"the network data Secret's key '{_NMSTATE_KEY}' is no text in UTF-8") from error


def _is_for(reference: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    return (
        group == API_VERSION.partition("/")[0]
        and reference.get("kind") == wanted["kind"]
        and reference.get("name") == wanted["name"]
    )
