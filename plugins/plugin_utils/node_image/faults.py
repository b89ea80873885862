# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May a machine become a node image? What node_info told of it, judged (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What has to be asked of the machine: options of node_info.
QUERIES: dict[str, Any] = {
    "units": ["kubelet", "containerd", "docker"],
    "files": ["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf"],
    "artifacts": True,
}


def faults(node: Mapping[str, Any], kubernetes: str, swap: object = "off") -> list[str]:
    """Everything that speaks against an image of this machine; nothing when it may become one."""
    base, units = node.get("base") or {}, node.get("units") or {}
    found = []
    if not base.get("prebaked"):
        found.append("/etc/kubenode/base.json does not say that base was prebaked")
    version = (base.get("kubernetes") or {}).get("version")
    if version != kubernetes:
        found.append(f"Kubernetes is {version or 'missing'}, not {kubernetes}")
    kubelet = units.get("kubelet") or {}
    if kubelet.get("enabled") != "enabled":
        found.append("the kubelet would not start at boot")
    if kubelet.get("active") == "active":
        found.append("the kubelet runs, although it has no cluster yet")
    runtime = (base.get("runtime") or {}).get("name") or "containerd"
    if (units.get(runtime) or {}).get("active") != "active":
        found.append(f"{runtime} does not run")
    found += [f"{path} is there: it has joined a cluster" for path in QUERIES["files"] if _exists(node, path)]
    if node.get("swaps") and swap in ("off", False):
        found.append("swap is on: " + ", ".join(str(one.get("name")) for one in node["swaps"]))
    for name, artifact in sorted((node.get("artifacts") or {}).items()):
        wrong = [path for path, state in (artifact.get("files") or {}).items() if not (state or {}).get("same")]
        found += [f"{path} of {name} is not as it was installed" for path in sorted(wrong)]
    return found


def _exists(node: Mapping[str, Any], path: str) -> bool:
    return bool(((node.get("files") or {}).get(path) or {}).get("exists"))
