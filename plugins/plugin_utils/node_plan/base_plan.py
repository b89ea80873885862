# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role base: what speaks against a machine, what to look at, and every step as a list of settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import to_whole_seconds
from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from .. import role_specs
from ..role_specs import plain
from . import base_inputs, host_settings, kubelet, plan_types, runtime, software, systems, templates, trust
from .base_inputs import STEPS, managed, normalised
from .plan_types import BaseInputs
from .systems import AMAZON, FLATCAR, RHEL, SUPPORTED, System, bin_dir, known, system_of

_CGROUP_2_ONLY = (1, 35)
#: versions of cri-dockerd that refuse Docker before 23: `MinimumDockerAPIVersion` in their libdocker/client.go is 1.42
_NEED_DOCKER_23 = ("0.4.0", "0.4.1")


def refusals(node: Node, inputs: BaseInputs, before: float, after: float, steps: Sequence[str] = STEPS) -> list[str]:
    """Every reason against this machine; empty when base can begin with ``steps``.

    ``before`` and ``after`` are the controller's clock (seconds since 1970) around the moment the facts were read.
    """
    if node.get("uid"):
        uid = node["uid"]
        return [f"the role needs the rights of root, but tasks run as user id {uid}; set become: true for the play"]
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
    found += _on_hold(node, inputs) + _versions_of_a_node(node, inputs, steps)
    found += _masked(node, inputs, steps)
    for client in software.without_storage(node, inputs):
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
    if node.get("cgroup") == 1 and systems.minor_number(inputs["kubernetes_version"]) < _CGROUP_2_ONLY:
        found.append(
            "the machine runs cgroup v1, which Kubernetes 1.35 and newer refuse; "
            "boot it with systemd.unified_cgroup_hierarchy=1"
        )
    if inputs["selinux"] == "enforcing" and node.get("selinux") == "absent":
        found.append(f"base_selinux is 'enforcing', but {system.name} has no SELinux; the step does nothing")
    return found


def matrix(node: Node, inputs: BaseInputs) -> list[str]:
    """The pair of Kubernetes and containerd, against what the containerd project has tested; cri-dockerd and Docker.

    A runtime that base does not manage is not known: which one it is, and of which version.
    """
    if not inputs["manage_runtime"]:
        return []
    if inputs["container_runtime"] == "docker":
        return _old_docker(node, inputs)
    running, minor = runtime.containerd_version(node, inputs), inputs["kubernetes_minor"]
    minimums = systems.for_minor(inputs["matrix"], inputs["kubernetes_version"])["containerd"]
    if not running or systems.satisfies(running, minimums):
        return []
    fix = {
        "tarball": "set base_containerd_version",
        "repository": "set base_containerd_version",
        "distribution": "set base_containerd_source to tarball or repository",
    }[inputs["containerd_source"]]
    return [
        "containerd {} is too old for Kubernetes {}, which needs {} or newer of these lines; {}{}".format(
            running, minor, ", ".join(sorted(minimums, key=systems.release_numbers)), fix, _only_warn(inputs)
        )
    ]


def _only_warn(inputs: BaseInputs) -> str:
    """The way out of a refusal that a warning does not have."""
    return "" if inputs["version_check"] == "warn" else ", or base_version_check to 'warn'"


def _old_docker(node: Node, inputs: BaseInputs) -> list[str]:
    """What cri-dockerd says of the Docker that is installed, or will be."""
    version = inputs["cri_dockerd_version"]
    if version not in _NEED_DOCKER_23:
        return []
    for package in runtime.docker_packages(node, inputs)[:1]:
        text = (node.get("packages") or {}).get(package) or (node.get("candidates") or {}).get(package)
        docker = systems.numbers(text)
        if docker is not None and docker < (23, 0, 0):
            return [
                f"cri-dockerd {version} needs Docker 23 or newer, and {package} of this machine is "
                f"{systems.plain_version(text)}; set base_containerd_source to repository, base_cri_dockerd_version to "
                f"another than {' and '.join(_NEED_DOCKER_23)}{_only_warn(inputs)}"
            ]
    return []


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
            found.append(
                f"base_container_runtime is 'docker', but {system.name} has no such package; "
                "set base_containerd_source to repository"
            )
    if inputs["kubelet_source"] == "repository" and inputs["manage_kubelet"] and system.family == FLATCAR:
        found.append("base_kubelet_source is 'repository', but Flatcar has no package manager; use binary")
    if inputs["packages_extra"] and system.family == FLATCAR:
        found.append(
            "base_packages_extra is not empty, but Flatcar has no package manager; use sysext images or an empty list"
        )
    return found


def _sums(node: Node, inputs: BaseInputs) -> list[str]:
    """checksums of the machine's own architecture and build; that there are any was checked before."""
    arch = node["arch"]
    return [
        f"no sha256 of {component} {version} for {arch} is pinned; give it as base_checksums: "
        f"{{{component}: {{'{version}': {{{arch}: …}}}}}}"
        for _name, component, version in software.needed_programs(node, inputs)
        if not software.pinned_digest(node, inputs, component, version)
    ]


def _cgroup(node: Node, inputs: BaseInputs) -> list[str]:
    if node.get("cgroup") == 1 and systems.minor_number(inputs["kubernetes_version"]) >= _CGROUP_2_ONLY:
        return [
            f"the machine runs cgroup v1, which Kubernetes {inputs['kubernetes_minor']} refuses; boot it with "
            "systemd.unified_cgroup_hierarchy=1"
        ]
    return []


def _disk(node: Node, inputs: BaseInputs) -> list[str]:
    """Room is needed once: a machine that base had been on before may be fuller by now."""
    if (node.get("base") or {}).get("kubernetes", {}).get("version") == inputs["kubernetes_version"]:
        return []
    wanted, found = base_inputs.size(inputs["min_disk"]) or 0, []
    free = node.get("disk_free") or {}
    path = "/var" if "/var" in free else "/"
    if path in free and free[path] < wanted:
        least = inputs["min_disk"]
        found.append(f"{path} has {free[path] >> 20} MiB free, base_min_disk is {least}; make room or lower it")
    return found


def _clock(node: Node, inputs: BaseInputs, before: float, after: float) -> list[str]:
    if inputs["time_sync"] == "ignore":
        return []
    found, time = [], node.get("time") or {}
    now, limit = time.get("unix"), inputs["max_clock_skew"]
    if now is not None:
        skew = now - after if now > after else min(now - before, 0)
        if abs(skew) > limit:
            where = "ahead of" if skew > 0 else "behind"
            found.append(
                f"the machine's clock is {abs(skew):.0f} s {where} the controller's, base_max_clock_skew is {limit} s; "
                "set it right"
            )
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


def _versions_of_a_node(node: Node, inputs: BaseInputs, steps: Sequence[str]) -> list[str]:
    """A node runs pods: what its operator has upgraded stays, and its kubelet gets another minor version drained."""
    found: list[str] = []
    if not _is_node(node):
        return found
    for program, step, wanted, variable in _versioned(inputs):
        runs = kubelet.version_of(program, node)
        if step not in steps or not runs or not systems.numbers(wanted):
            continue
        here = f"{program} {runs} is on this node, and base_{variable} is {wanted}"
        if systems.release_numbers(runs) > systems.release_numbers(wanted) and not inputs["allow_downgrade"]:
            found.append(
                f"{here}: a node does not go back to an older version unasked; set base_{variable} to {runs}, or "
                "base_allow_downgrade to true"
            )
        elif program == "kubelet" and systems.minor(runs) != systems.minor(wanted) and not inputs["allow_other_minor"]:
            is_newer = systems.release_numbers(wanted) > systems.release_numbers(runs)
            way = "kubenode.provision.node_upgrade takes nodes there one by one. " if is_newer else ""
            found.append(
                f"{here}: another minor version is for a drained node, and not newer than its API server; {way}"
                f"Set base_{variable} to {runs}, or, for a node that you have drained, base_allow_other_minor to true"
            )
    return found


def _is_node(node: Node) -> bool:
    files = node.get("files", {})
    return any(path in files and files[path]["exists"] for path in cleanup.IS_NODE)


def _masked(node: Node, inputs: BaseInputs, steps: Sequence[str]) -> list[str]:
    """A unit of a node is masked by its operator, who does not want it to run."""
    if not _is_node(node):
        return []
    units = node.get("units") or {}
    masked = [name for name in base_inputs.unit_names(inputs) if (units.get(name) or {}).get("load") == "masked"]
    step = {"kubelet.service": "kubelet", f"{kubelet.PROBE}.service": "health", f"{kubelet.PROBE}.timer": "health"}
    return [
        f"{name} is masked on this node: its operator does not want it to run; unmask it (systemctl unmask {name}), or "
        f"set base_manage_{step.get(name, 'runtime')} to false"
        for name in masked
        if step.get(name, "runtime") in steps
    ]


def _versioned(inputs: BaseInputs) -> list[tuple[str, str, str, str]]:
    """Program, the step that brings it, version and variable of what base installs in a version that is asked for."""
    listed = []
    if inputs["manage_kubelet"]:
        step = "packages" if inputs["kubelet_source"] == "repository" else "kubelet"
        listed.append(("kubelet", step, inputs["kubernetes_version"], "kubernetes_version"))
    if inputs["manage_runtime"] and inputs["container_runtime"] == "containerd":
        if inputs["containerd_source"] == "tarball":
            listed.append(("containerd", "runtime", inputs["containerd_version"], "containerd_version"))
            listed.append(("runc", "runtime", inputs["runc_version"], "runc_version"))
        else:
            listed.append(("containerd", "packages", inputs["containerd_wanted"], "containerd_version"))
    return listed


def _on_hold(node: Node, inputs: BaseInputs) -> list[str]:
    """What a person holds is theirs. A lock of dnf names a version, and dnf installs that one."""
    if not inputs["manage_packages"] or known(node).package_manager != "apt":
        return []
    own = software.held(node, inputs)
    kept = [name for name in _held_and_missing(node, inputs) if name not in own]
    if not kept:
        return []
    return [
        f"on hold on this machine, so that base does not install them: {', '.join(kept)}; let them go "
        f"(apt-mark unhold {' '.join(kept)}), or install them yourself"
    ]


def _moves_held(node: Node, inputs: BaseInputs) -> bool:
    """Whether a package that this role holds is to be installed in another version."""
    own = software.held(node, inputs)
    return any(name in own for name in _held_and_missing(node, inputs))


def _held_and_missing(node: Node, inputs: BaseInputs) -> list[str]:
    missing = [name.partition("=")[0] for name in software.missing_packages(node, inputs)]
    return [name for name in missing if name in node.get("held", [])]


def preflight(node: Node, inputs: BaseInputs, steps: Sequence[str], before: float, after: float) -> dict[str, Any]:
    """``{refusals, warnings, packages, moves_held, artifacts}``.

    Sentences, package names as the manager spells them, whether one of these is on hold by the role, programs.

    ``before`` and ``after`` are the controller's clock (seconds since 1970) around the moment the facts were read.
    Nothing is planned for a machine that is refused. Templates of the user's are rendered, since they may fail.
    """
    found: dict[str, Any] = {
        "refusals": refusals(node, inputs, before, after, steps),
        "warnings": warnings(node, inputs),
        "packages": [],
        "moves_held": False,
        "artifacts": [],
    }
    if found["refusals"]:
        return found
    if inputs["manage_packages"]:
        found["packages"] = software.missing_packages(node, inputs)
        found["moves_held"] = _moves_held(node, inputs)
    found["artifacts"] = [one["name"] for one in software.missing_artifacts(node, inputs, steps)]
    if inputs["template_path"]:
        try:
            plan(node, inputs, steps)
        except templates.TemplateFailed as error:
            found["refusals"].append(str(error))
    return found


#: tags of the role that are no steps: they choose parts of every run
OTHERS = ("preflight", "prebake")


#: purposes that need the facts of a machine
_WITH_NODE = ("preflight", "sources", "artifacts", "settings", "secrets")


def base_plan(
    given: Mapping[str, Any],
    purpose: str,
    node: Mapping[str, Any] | None = None,
    steps: Sequence[str] | None = None,
    versions: Mapping[str, Any] | None = None,
    fail: bool = True,
    run_tags: Sequence[str] = ("all",),
    skip_tags: Sequence[str] = (),
    joins: bool = False,
    before: float | None = None,
    inventory_dir: str | None = None,
    search: Sequence[str] = (),
) -> Any:
    """What the role asks for; every ValueError names the variable, its value and the fix.

    ``given``: the role's variables, with or without ``base_``, for ``inputs``; else what ``inputs`` returned.
    ``purpose``: ``variables`` (names), ``inputs`` (checked and complete), ``steps`` (of this run, by its tags), or the
    options of a module: ``queries`` of node_info, ``artifacts``, ``settings`` and ``secrets``, ``sources`` (settings
    before packages are fetched), ``images``. ``preflight``: what speaks against the machine, without URLs and contents,
    so that it can be kept as a fact; ``before``: the controller's clock just before the facts were read, so that a slow
    connection is no wrong clock.
    """
    after = time.time()
    given_, node_, data = plain(given), plain(node), plain(versions)
    answers: dict[str, Callable[[], Any]] = {
        "variables": lambda: list(base_inputs.variables()),
        "inputs": lambda: checked_inputs(given_, data, fail, inventory_dir, search, skip_tags),
        "steps": lambda: steps_of_run(given_, run_tags),
        "queries": lambda: queries(given_, joins),
        "preflight": lambda: preflight(node_, given_, steps or (), after if before is None else float(before), after),
        "sources": lambda: plan_types.without_secrets(software.sources(node_, given_)),
        "artifacts": lambda: software.missing_artifacts(node_, given_, steps),
        "settings": lambda: settings(node_, given_, steps),
        "secrets": lambda: secrets(node_, given_),
        "images": lambda: software.images(given_),
    }
    if purpose not in answers:
        raise ValueError(f"base_plan: {purpose!r} must be one of {', '.join(answers)}")
    if not isinstance(given, Mapping):
        raise ValueError(f"base_plan: feed it a dictionary, not a {type(given).__name__}")
    if purpose in _WITH_NODE and not isinstance(node, Mapping):
        raise ValueError(f"base_plan: {purpose} needs node")
    try:
        return answers[purpose]()
    except (ValueError, KeyError) as error:
        text = f"{error} is missing in what it was given" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"base_plan: {text}") from error


def checked_inputs(
    given: Mapping[str, Any],
    data: Mapping[str, Any],
    fail: bool = True,
    inventory_dir: str | None = None,
    search: Sequence[str] = (),
    skip_tags: Sequence[str] = (),
) -> Mapping[str, Any]:
    """The role's variables, checked and complete; with ``fail`` false, ``{refused: …}`` for those that cannot be.

    ``inventory_dir`` and ``search``: where relative paths of the controller are looked for.
    """
    try:
        skipped = [step for step in STEPS if step in skip_tags]
        if skipped:
            # Every task of the role has the tags of all steps.
            ways = [f"set base_manage_{step} to false" for step in skipped if f"manage_{step}" in given]
            raise ValueError(
                f"--skip-tags has {', '.join(skipped)}, which would leave out the whole of base; "
                + ", or ".join([*ways, "name the steps that are wanted by --tags"])
            )
        inputs = normalised(given, data)
        found = templates.folders("base", inputs["template_path"], inventory_dir, search)
        return {**inputs, "template_path": found, "collection": role_specs.collection_version()}
    except ValueError as error:
        if fail:
            raise
        return {"refused": str(error)}


def steps_of_run(inputs: BaseInputs, run_tags: Sequence[str]) -> list[str]:
    """The managed steps that the tags of the run leave, in order.

    Tags that are none of base, such as one that a playbook gave the whole role, choose every step.
    """
    named = [tag for tag in run_tags if tag in STEPS or tag in OTHERS]
    return [step for step in managed(inputs) if not named or step in named]


def queries(inputs: BaseInputs, joins: bool = False) -> dict[str, Any]:
    """Few names, since each look costs time; a candidate is asked for only where a package decides the version.

    ``joins``: the role join follows and is to find everything here that it would ask for itself.
    """
    docker = inputs["container_runtime"] == "docker"
    by_package = (
        inputs["cri_dockerd_version"] in _NEED_DOCKER_23 if docker else inputs["containerd_source"] != "tarball"
    )
    join = kubelet.queries() if joins else {"binaries": kubelet.places("kubelet"), "files": []}
    return {
        "packages": software.every_name(inputs),
        "candidates": inputs["manage_runtime"] and by_package,
        "binaries": (["dockerd"] if docker else ["containerd", "runc"]) + join["binaries"],
        "units": base_inputs.unit_names(inputs),
        # a machine that has joined is no image, and keeps its versions
        "files": sorted({*cleanup.JOINED, *join["files"]}),
        "sysctls": [],
        "modules": [],
    }


RECORD = "/etc/kubenode/base.json"


def record(node: Node, inputs: BaseInputs) -> dict[str, Any]:
    """What is on the machine; ``at`` stays that of the first run that left it so."""
    name = inputs["container_runtime"]
    version = _docker_version(node) if name == "docker" else runtime.containerd_version(node, inputs)
    now: dict[str, Any] = {
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
        "images": software.pinned_images(inputs),
        "bin_dir": bin_dir(node, inputs),
        "swap": inputs["swap"],
    }
    drop_ins = {unit: sorted(given) for unit, given in sorted(inputs["unit_drop_ins"].items()) if given}
    if drop_ins:
        now["unit_drop_ins"] = drop_ins
    before = node.get("base") or {}
    # so that a later run takes away what is wanted no more
    authorities = trust.names(inputs) if inputs["manage_ca"] else before.get("extra_ca")
    registries = sorted(inputs["registry_mirrors"]) if inputs["manage_runtime"] else before.get("registry_mirrors")
    if authorities:
        now["extra_ca"] = authorities
    if registries:
        now["registry_mirrors"] = registries
    shutdown = {
        "grace_period": inputs["shutdown_grace_period"],
        "grace_period_critical": inputs["shutdown_grace_period_critical"],
    }
    if not inputs["manage_shutdown"]:
        # as an earlier run set it, which this one leaves alone
        shutdown = before.get("shutdown") or {}
    # a record without it means the defaults
    if shutdown and shutdown != {name: role_specs.options("base")["shutdown_" + name]["default"] for name in shutdown}:
        now["shutdown"] = shutdown
    # a machine that was prebaked stays so: the run that completes it on its first day takes nothing away
    if before.get("prebaked") and not inputs["prebake"]:
        now["prebaked"] = True
        now["images"] = list(dict.fromkeys([*before.get("images", []), *now["images"]]))
    same = {key: value for key, value in before.items() if key != "at"} == now
    now["at"] = before["at"] if same and before.get("at") else inputs.get("at", "")
    return now


def _docker_version(node: Node) -> str:
    for package in ("docker-ce", "docker.io", "docker"):
        found = systems.plain_version((node.get("packages") or {}).get(package) or "")
        if found:
            return found
    binary = node.get("binaries", {}).get("dockerd")
    return systems.plain_version(binary["version"]) if binary else ""


def facts(node: Node, inputs: BaseInputs) -> list[Setting]:
    """The folder and the file."""
    text = json.dumps(record(node, inputs), indent=2, sort_keys=True) + "\n"
    return [plan_types.directory("facts/dir", "/etc/kubenode"), plan_types.file("facts/base", RECORD, text)]


def _updates(node: Node, inputs: BaseInputs) -> list[Setting]:
    result = host_settings.updates(node, inputs)
    held = software.held(node, inputs)
    if held:
        result.append(plan_types.setting("hold", "updates/hold", packages=held, held=True))
    return result


_MAKERS = {
    "packages": software.repository_files,
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
    "cni": kubelet.cni,
    "runtime": runtime.runtime,
    "kubelet": kubelet.kubelet,
    "health": kubelet.health,
    "facts": facts,
}


def plan(node: Node, inputs: BaseInputs, steps: str | Sequence[str] | None = None) -> list[Setting]:
    """The settings of these steps, of every managed one when none is named; always in the one order that works."""
    if steps is None:
        wanted = managed(inputs)
    else:
        wanted = [steps] if isinstance(steps, str) else list(steps)
        unknown = [step for step in wanted if step not in _MAKERS and step != "preflight"]
        if unknown:
            raise ValueError(f"step {unknown[0]!r} is unknown; there are {', '.join(STEPS)}")
    inputs = {**inputs, "at": inputs.get("at") or to_whole_seconds(time.time())}
    return [item for step in STEPS if step in wanted for item in _MAKERS[step](node, inputs)]


def settings(node: Node, inputs: BaseInputs, steps: str | Sequence[str] | None = None) -> list[Setting]:
    """The plan without the contents of secret files."""
    return plan_types.without_secrets(plan(node, inputs, steps))


def secrets(node: Node, inputs: BaseInputs) -> dict[str, str]:
    """Name → content of the secret files of every managed step."""
    return plan_types.secrets_of(plan(node, inputs))
