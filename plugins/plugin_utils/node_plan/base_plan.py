# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role base: what to look at, which steps, and every step as a list of settings."""

from __future__ import annotations

import json

from . import (
    builders,
    containerd,
    downloads,
    host_settings,
    kubelet,
    kubelet_service,
    packages,
    preflight,
    runtime,
    trust,
    versions,
)
from .base_inputs import STEPS, managed
from .systems import bin_dir

#: tags of the role that are no steps: they choose parts of every run
OTHERS = ("preflight", "prebake")


def steps(inputs, run_tags, skip_tags):
    """The managed steps that the tags of the run leave, in order.

    Tags that are none of base, such as one that a playbook gave the whole role, choose every step.
    """
    named = [tag for tag in run_tags if tag in STEPS or tag in OTHERS]
    return [step for step in managed(inputs) if (not named or step in named) and step not in skip_tags]


def queries(inputs, joins=False):
    """Few names, since each look costs time; a candidate is asked for only where a package decides the version.

    ``joins``: the role join follows and is to find everything here that it would ask for itself.
    """
    docker = inputs["container_runtime"] == "docker"
    join = kubelet.queries() if joins else {"binaries": [], "units": [], "files": []}
    return {
        "packages": packages.every_name(inputs),
        "candidates": inputs["manage_runtime"] and inputs["containerd_source"] != "tarball" and not docker,
        "binaries": ["dockerd" if docker else "containerd"] + join["binaries"],
        "units": join["units"],
        # a machine that has joined is no image
        "files": sorted({*(preflight.JOINED if inputs["prebake"] else ()), *join["files"]}),
        "sysctls": [],
        "modules": [],
    }


RECORD = "/etc/kubenode/base.json"


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
        "images": downloads.pinned_images(inputs),
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
    return [builders.directory("facts/dir", "/etc/kubenode"), builders.file("facts/base", RECORD, text)]


def _updates(node, inputs):
    result = host_settings.updates(node, inputs)
    held = packages.held(node, inputs)
    if held:
        result.append(builders.setting("hold", "updates/hold", packages=held, held=True))
    return result


_MAKERS = {
    "packages": packages.repository_files,
    "kernel": host_settings.kernel,
    "swap": host_settings.swap,
    "ca": trust.ca,
    "proxy": trust.proxy,
    "selinux": host_settings.selinux,
    "firewall": host_settings.firewall,
    "time": host_settings.time,
    "journald": host_settings.journald,
    "shutdown": host_settings.shutdown,
    "updates": _updates,
    "cni": kubelet_service.cni,
    "runtime": runtime.runtime,
    "kubelet": kubelet_service.kubelet,
    "health": kubelet_service.health,
    "facts": facts,
}


def settings(node, inputs, steps=None):
    """The settings of these steps, of every managed one when none is named; always in the one order that works.

    Settings with a secret carry only its name (``content_secret``); see secrets().
    """
    if steps is None:
        wanted = managed(inputs)
    else:
        wanted = [steps] if isinstance(steps, str) else list(steps)
        unknown = [step for step in wanted if step not in _MAKERS and step != "preflight"]
        if unknown:
            raise ValueError("step %r is unknown; there are %s" % (unknown[0], ", ".join(STEPS)))
    return [item for step in STEPS if step in wanted for item in _MAKERS[step](node, inputs)]


def secrets(node, inputs):
    """Name → content of the secret files of every managed step."""
    return {item["content_secret"]: item.hidden for item in settings(node, inputs) if item.hidden is not None}
