# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The role's variables, checked and completed, before any machine is asked anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.options import truth
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number

from . import checks, versions

#: every managed step, in the order in which its settings have to come
STEPS = (
    "packages",
    "kernel",
    "swap",
    "ca",
    "proxy",
    "selinux",
    "firewall",
    "time",
    "journald",
    "shutdown",
    "updates",
    "cni",
    "runtime",
    "kubelet",
    "health",
    "facts",
)
#: steps that have a switch of their own (base_manage_NAME)
SWITCHES = tuple(step for step in STEPS if step != "facts")

DEFAULTS: dict[str, Any] = {
    "kubernetes_version": "1.37.1",
    "container_runtime": "containerd",
    "containerd_source": "tarball",
    "containerd_version": "",
    "runc_version": "",
    "cni_plugins_version": "",
    "crictl_version": "",
    "cri_dockerd_version": "",
    "kubelet_source": "binary",
    "kubeadm": False,
    "checksums": {},
    "mirror": "",
    "mirrors": {},
    "version_check": "refuse",
    "bin_dir": "",
    "packages_extra": [],
    "storage_clients": [],
    "ipvs": False,
    "ipv6": True,
    "sysctls": {},
    "kernel_modules": [],
    "swap": "off",
    "sandbox_image": "",
    "registry_mirrors": {},
    "containerd_config": {},
    "snapshotter": "overlayfs",
    "journald_max": "1G",
    "shutdown_grace_period": "60s",
    "shutdown_grace_period_critical": "20s",
    "unattended_upgrades": "exclude",
    "http_proxy": "",
    "https_proxy": "",
    "no_proxy": "",
    "extra_ca": [],
    "selinux": "unmanaged",
    "firewall": "unmanaged",
    "firewall_ports": ["10250/tcp", "30000-32767/tcp", "30000-32767/udp"],
    "kubelet_watchdog": "30s",
    "runtime_probe": {},
    "max_clock_skew": 30,
    "time_sync": "ensure",
    "min_disk": "4G",
    "prebake": False,
    "images": [],
    "image_archives": [],
    "repository_keys": {},
    "repository_key_fingerprints": {},
}
PROBE = {"interval": "10s", "timeout": "10s", "threshold": 6}
#: component of the data file → (variable of its version, entry of the defaults)
_DEFAULTED = {
    "runc_version": "runc",
    "cni_plugins_version": "cni_plugins",
    "cri_dockerd_version": "cri_dockerd",
}


def normalised(given, data):
    """The role's variables (with or without base_ in front) as the plan takes them; PlanError lists all that is wrong.

    ``data`` is base_versions: checksums, defaults, matrix, key_fingerprints. Versions left empty get the data file's
    defaults, and the user's checksums are laid over the data file's.
    """
    inputs, problems = _taken(given), checks.Problems()
    checks.check(inputs, problems)
    problems.stop()
    minor = versions.minor(inputs["kubernetes_version"])
    inputs["kubernetes_minor"] = minor
    inputs["checksums"] = _merged_checksums(data["checksums"], inputs["checksums"])
    inputs["matrix"] = data["matrix"]
    _fill_versions(inputs, data["defaults"])
    inputs["key_fingerprints"] = {
        name: [*data.get("key_fingerprints", {}).get(name, ()), *inputs["repository_key_fingerprints"].get(name, ())]
        for name in ("kubernetes", "docker")
    }
    checks.check_sums(inputs, problems)
    checks.check_keys(inputs, problems)
    problems.stop()
    needed = {(component, version) for component, version, _variable in checks.needed_sums(inputs)}
    needed |= {(component + "-static", version) for component, version in needed}
    needed.add((checks.NODE_ARCHIVE, inputs["kubernetes_version"]))
    inputs["checksums"] = {
        component: {version: inputs["checksums"][component][version]}
        for component, version in sorted(needed)
        if version in inputs["checksums"].get(component, {})
    }
    return inputs


def _taken(given):
    inputs = {name: (value.copy() if isinstance(value, (dict, list)) else value) for name, value in DEFAULTS.items()}
    inputs.update({"manage_" + step: True for step in SWITCHES})
    for variable, value in given.items():
        name = variable[len("base_") :] if variable.startswith("base_") else variable
        if name in inputs and value is not None:
            inputs[name] = value
    probe = inputs["runtime_probe"]
    if isinstance(probe, Mapping):
        probe = dict(PROBE, **probe)
        inputs["runtime_probe"] = dict(probe, threshold=_number(probe["threshold"]))
    inputs["max_clock_skew"] = _number(inputs["max_clock_skew"])
    # YAML reads a bare off as false
    inputs["swap"] = "off" if inputs["swap"] is False else inputs["swap"]
    for name in inputs:
        if isinstance(DEFAULTS.get(name, True), bool):
            inputs[name] = truth(inputs[name])
    return inputs


def _number(value):
    """Numbers of the command line (-e) arrive as text."""
    found = whole_number(value)
    return value if found is None else found


def _merged_checksums(ours, theirs):
    result = {component: dict(by_version) for component, by_version in ours.items()}
    for component, by_version in theirs.items():
        below = result.setdefault(component, {})
        for version, by_arch in by_version.items():
            below[str(version)] = dict(below.get(str(version), {}), **by_arch)
    return result


def _fill_versions(inputs, defaults):
    kubernetes = inputs["kubernetes_version"]
    for variable, entry in _DEFAULTED.items():
        inputs[variable] = inputs[variable] or defaults[entry]
    inputs["crictl_version"] = inputs["crictl_version"] or versions.for_minor(defaults["crictl"], kubernetes)
    inputs["containerd_wanted"] = inputs["containerd_version"]
    if inputs["containerd_source"] == "tarball":
        inputs["containerd_version"] = inputs["containerd_version"] or versions.for_minor(
            defaults["containerd"], kubernetes
        )
    pause = versions.for_minor(defaults["pause"], kubernetes)
    inputs["sandbox_image"] = inputs["sandbox_image"] or "registry.k8s.io/pause:%s" % pause


def managed(inputs):
    """The managed steps, in order."""
    return [step for step in STEPS if inputs.get("manage_" + step, True)]
