# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Step facts: /etc/kubenode/base.json says what base left on the machine."""

from __future__ import annotations

import json

from . import containerd, images, parts, runtime, versions
from .systems import bin_dir

FILE = "/etc/kubenode/base.json"


def record(node, inputs):
    """What is on the machine; ``at`` stays that of the first run that left it so."""
    name = inputs["container_runtime"]
    version = _docker_version(node) if name == "docker" else containerd.version(node, inputs)
    now = {
        "collection": inputs.get("collection", ""),
        "prebaked": inputs["prebake"],
        "kubernetes": {"version": inputs["kubernetes_version"], "minor": inputs["kubernetes_minor"]},
        "runtime": {
            "name": name,
            "version": version,
            "source": inputs["containerd_source"],
            "socket": runtime.socket(inputs),
        },
        "cni_plugins": inputs["cni_plugins_version"],
        "crictl": inputs["crictl_version"],
        "images": images.pinned(inputs),
        "bin_dir": bin_dir(node, inputs),
        "swap": inputs["swap"],
    }
    before = node.get("base") or {}
    # a machine that was prebaked stays so: the run that completes it on its first day takes nothing away
    if before.get("prebaked") and not inputs["prebake"]:
        now["prebaked"] = True
        now["images"] = list(dict.fromkeys([*before.get("images", []), *now["images"]]))
    same = {key: value for key, value in before.items() if key != "at"} == now
    now["at"] = before["at"] if same and before.get("at") else inputs.get("at", "")
    return now


def _docker_version(node):
    for package in ("docker-ce", "docker.io", "docker"):
        found = versions.plain((node.get("packages") or {}).get(package) or "")
        if found:
            return found
    return versions.plain(((node.get("binaries") or {}).get("dockerd") or {}).get("version") or "")


def facts(node, inputs):
    """The folder and the file."""
    text = json.dumps(record(node, inputs), indent=2, sort_keys=True) + "\n"
    return [parts.directory("facts/dir", "/etc/kubenode"), parts.file("facts/base", FILE, text)]
