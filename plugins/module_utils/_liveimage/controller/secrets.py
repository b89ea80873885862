# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Secrets with network data: whose they are, and what is in them (pure)."""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Mapping
from typing import Any

from ..errors import ImageError

LABEL, LABEL_VALUE = "environment.metal3.io", "baremetal"  # only Secrets with it are watched
API_VERSION, KIND = "metal3.io/v1alpha1", "PreprovisioningImage"
_KEY = "nmstate"


def claimed(secret: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any] | None:
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


def owners(secret: Mapping[str, Any]) -> list[str]:
    """The names of the images that have claimed it."""
    references = (secret.get("metadata") or {}).get("ownerReferences") or ()
    return [str(one.get("name")) for one in references if _is_for(one, {"kind": KIND, "name": one.get("name")})]


def network_data(data: Mapping[str, str]) -> str:
    """The NMState document; "" when the Secret is empty: the host gets its addresses by DHCP."""
    if not data:
        return ""
    if _KEY not in data:
        raise ImageError("network data Secret provided but missing required '%s' key" % _KEY)
    try:
        return base64.b64decode(data[_KEY] or "", validate=True).decode("utf-8")
    except (binascii.Error, ValueError) as error:
        raise ImageError("the network data Secret's key '%s' is no text in UTF-8" % _KEY) from error


def _is_for(reference: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    return (
        group == API_VERSION.partition("/")[0]
        and reference.get("kind") == wanted["kind"]
        and reference.get("name") == wanted["name"]
    )
