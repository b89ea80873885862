# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a machine before anything is changed, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node

from . import base_inputs, downloads, packages, runtime, version_numbers
from .plan_types import BaseInputs
from .systems import AMAZON, FLATCAR, RHEL, SUPPORTED, System, system_of

_CGROUP_2_ONLY = (1, 35)


def refusals(node: Node, inputs: BaseInputs, before: float, after: float) -> list[str]:
    """Every reason against this machine; empty when base can begin.

    ``before`` and ``after`` are the controller's clock (seconds since 1970) around the moment the facts were read.
    """
    if node.get("uid"):
        text = "the role needs the rights of root, but tasks run as user id %s; set become: true for the play"
        return [text % node["uid"]]
    system = system_of(node)
    if system is None:
        shown = node["os"].get("pretty_name") or f"{node['os']['id']} {node['os'].get('version_id', '')}"
        return [f"{shown} is not supported; supported are {SUPPORTED}"]
    if node["read_only_usr"] and system.package_manager != "none":
        shown = node["os"].get("pretty_name") or system.name
        reason = "has a read-only /usr, as systems have whose packages are part of an image (CoreOS, image mode)"
        return [f"{shown} {reason}; base installs packages; supported are, with a writable /usr, {SUPPORTED}"]
    if node["arch"] not in ("amd64", "arm64"):
        return [f"the machine's architecture is {node['arch']}; supported are amd64 and arm64"]
    found = _source_faults(system, inputs) + _sums(node, inputs) + _cgroup(node, inputs) + _disk(node, inputs)
    found += _clock(node, inputs, before, after) + _selinux(node, inputs) + _joined(node, inputs)
    for client in packages.without_storage(node, inputs):
        found.append(
            f"base_storage_clients names {client}, of which {system.name} has no package; take it out of the list"
        )
    if inputs["version_check"] == "refuse" and not _source_faults(system, inputs):
        found += matrix(node, inputs)
    return found


def warnings(node: Node, inputs: BaseInputs) -> list[str]:
    """What is doubtful but allowed."""
    system = system_of(node)
    if system is None:
        return []
    found = []
    if inputs["version_check"] == "warn" and not _source_faults(system, inputs):
        found += matrix(node, inputs)
    if node.get("cgroup") == 1 and version_numbers.release(inputs["kubernetes_version"])[:2] < _CGROUP_2_ONLY:
        found.append(
            "the machine runs cgroup v1, which Kubernetes 1.35 and newer refuse; "
            "boot it with systemd.unified_cgroup_hierarchy=1"
        )
    if inputs["selinux"] == "enforcing" and node.get("selinux") == "absent":
        found.append(f"base_selinux is 'enforcing', but {system.name} has no SELinux; the step does nothing")
    return found


def matrix(node: Node, inputs: BaseInputs) -> list[str]:
    """The pair of Kubernetes and containerd, against what the containerd project has tested."""
    if inputs["container_runtime"] != "containerd":
        return []
    running, minor = runtime.containerd_version(node, inputs), inputs["kubernetes_minor"]
    minimums = version_numbers.for_minor(inputs["matrix"], inputs["kubernetes_version"])["containerd"]
    if not running or version_numbers.satisfies(running, minimums):
        return []
    fix = {
        "tarball": "set base_containerd_version",
        "repository": "set base_containerd_version",
        "distribution": "set base_containerd_source to tarball or repository",
    }[inputs["containerd_source"]]
    return [
        "containerd {} is too old for Kubernetes {}, which needs {} or newer of these lines; "
        "{}, or base_version_check to 'warn'".format(
            running, minor, ", ".join(sorted(minimums, key=version_numbers.release)), fix
        )
    ]


def _source_faults(system: System, inputs: BaseInputs) -> list[str]:
    found, source, engine = [], inputs["containerd_source"], inputs["container_runtime"]
    if inputs["manage_runtime"]:
        if source == "distribution" and engine == "containerd" and system.family == RHEL:
            found.append(
                f"base_containerd_source is 'distribution', but {system.name} has no containerd package; "
                "use tarball or repository"
            )
        if source == "repository" and system.family in (AMAZON, FLATCAR):
            fix = "use tarball or distribution" if engine == "containerd" else "use distribution"
            found.append(
                f"base_containerd_source is 'repository', but Docker has no repository for {system.name}; {fix}"
            )
        if engine == "docker" and system.family == RHEL and source != "repository":
            text = "base_container_runtime is 'docker', but %s has no such package; "
            text += "set base_containerd_source to repository"
            found.append(text % system.name)
    if inputs["kubelet_source"] == "repository" and inputs["manage_kubelet"] and system.family == FLATCAR:
        found.append("base_kubelet_source is 'repository', but Flatcar has no package manager; use binary")
    if inputs["packages_extra"] and system.family == FLATCAR:
        found.append(
            "base_packages_extra is not empty, but Flatcar has no package manager; use sysext images or an empty list"
        )
    return found


def _sums(node: Node, inputs: BaseInputs) -> list[str]:
    """checksums of the machine's own architecture and build; that there are any was checked before."""
    text = "no sha256 of %s %s for %s is pinned; give it as base_checksums: {%s: {'%s': {%s: …}}}"
    return [
        text % (component, version, node["arch"], component, version, node["arch"])
        for _name, component, version in downloads.needed(node, inputs)
        if not downloads.pinned_digest(node, inputs, component, version)
    ]


def _cgroup(node: Node, inputs: BaseInputs) -> list[str]:
    if node.get("cgroup") == 1 and version_numbers.release(inputs["kubernetes_version"])[:2] >= _CGROUP_2_ONLY:
        text = (
            "the machine runs cgroup v1, which Kubernetes %s refuses; boot it with systemd.unified_cgroup_hierarchy=1"
        )
        return [text % inputs["kubernetes_minor"]]
    return []


def _disk(node: Node, inputs: BaseInputs) -> list[str]:
    """Room is needed once: a machine that base had been on before may be fuller by now."""
    if (node.get("base") or {}).get("kubernetes", {}).get("version") == inputs["kubernetes_version"]:
        return []
    wanted, found = base_inputs.size(inputs["min_disk"]) or 0, []
    free = node.get("disk_free") or {}
    path = "/var" if "/var" in free else "/"
    if path in free and free[path] < wanted:
        text = "%s has %d MiB free, base_min_disk is %s; make room or lower it"
        found.append(text % (path, free[path] >> 20, inputs["min_disk"]))
    return found


def _clock(node: Node, inputs: BaseInputs, before: float, after: float) -> list[str]:
    if inputs["time_sync"] == "ignore":
        return []
    found, time = [], node.get("time") or {}
    now, limit = time.get("unix"), inputs["max_clock_skew"]
    if now is not None:
        skew = now - after if now > after else min(now - before, 0)
        if abs(skew) > limit:
            text = "the machine's clock is %.0f s %s the controller's, base_max_clock_skew is %s s; set it right"
            found.append(text % (abs(skew), "ahead of" if skew > 0 else "behind", limit))
    if inputs["time_sync"] == "check" and time.get("ntp_synchronized") is False:
        found.append("no time service keeps the machine's clock; start one, or set base_time_sync to 'ensure'")
    return found


def _selinux(node: Node, inputs: BaseInputs) -> list[str]:
    if inputs["selinux"] == "enforcing" and node.get("selinux") == "disabled":
        return ["base_selinux is 'enforcing', but SELinux is disabled on the machine; turn it on and reboot first"]
    return []


def _joined(node: Node, inputs: BaseInputs) -> list[str]:
    """An image of a node would make every machine of it claim to be that node."""
    files = node.get("files", {})
    there = [path for path in cleanup.JOINED if path in files and files[path]["exists"]]
    if not inputs["prebake"] or not there:
        return []
    text = "base_prebake is true, but the machine belongs to a cluster (%s); let it leave first (join_state: absent)"
    return [text % ", ".join(there)]


def preflight(
    node: Node, inputs: BaseInputs, steps: Iterable[str], before: float, after: float
) -> dict[str, list[str]]:
    """``{refusals, warnings, packages, artifacts}``: sentences, package names as the manager spells them, programs.

    ``before`` and ``after`` are the controller's clock (seconds since 1970) around the moment the facts were read.
    Nothing is planned for a machine that is refused.
    """
    found = {
        "refusals": refusals(node, inputs, before, after),
        "warnings": warnings(node, inputs),
        "packages": [],
        "artifacts": [],
    }
    if not found["refusals"]:
        if inputs["manage_packages"]:
            found["packages"] = packages.packages(node, inputs)["missing"]
        found["artifacts"] = [one["name"] for one in downloads.missing(node, inputs, steps)]
    return found
