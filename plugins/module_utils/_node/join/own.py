# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Is a Node the machine's own? A name proves nothing: another machine may have registered it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .cluster import Cluster

_PUBLISHED = ("InternalIP", "ExternalIP")


def options() -> dict[str, Any]:
    """Options that say which machine a Node must be of."""
    return {
        "machine_id": {"type": "str", "default": ""},
        "provider_id": {"type": "str", "default": ""},
        "addresses": {"type": "list", "elements": "str", "default": []},
    }


def find(reached: Cluster, params: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The Node of these ``options`` and ``name``, and whether it is the machine's own.

    A machine whose name is qualified most often has the short one as its hostname, and so its Node has. It is taken
    where there is no Node of the whole name, more than a name proves it, and ``params`` have its name from then on.
    """
    proof = params["machine_id"], params["provider_id"], params["addresses"]
    found = reached.node(params["name"])
    short = str(params["name"]).partition(".")[0]
    if found is None and any(proof) and short not in ("", params["name"]):
        other = reached.node(short)
        if other is not None and is_own(other, *proof):
            found, params["name"] = other, short
    return found, found is not None and is_own(found, *proof)


def is_own(node: dict[str, Any], machine_id: str = "", provider_id: str = "", addresses: Sequence[str] = ()) -> bool:
    """Whether a Node is the machine's; without anything to compare, its name is the proof.

    The machine ID is what the kubelet read on the machine, so it decides where it is known. A machine that does not
    answer is known by its provider ID, or by an address that nobody else has.
    """
    status, spec = node.get("status") or {}, node.get("spec") or {}
    if machine_id:
        return (status.get("nodeInfo") or {}).get("machineID") == machine_id
    if not provider_id and not addresses:
        return True
    if provider_id and spec.get("providerID"):
        return spec["providerID"] == provider_id
    shown = [one.get("address") for one in status.get("addresses") or [] if one.get("type") in _PUBLISHED]
    return bool(set(shown).intersection(addresses))
