# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine downloads: programs by pinned digest, container images, and their mirrors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.node_artifacts import difference

from . import base_inputs, runtime
from .plan_types import BaseInputs
from .systems import bin_dir, known

if TYPE_CHECKING:  # at runtime, it would load what fetches
    from ansible_collections.kubenode.provision.plugins.module_utils._node.node_artifacts import Artifact, Installed


def mirrored(url: str, inputs: BaseInputs) -> str:
    """The URL itself, or its place on the mirror of its host (base_mirrors) or of all hosts (base_mirror/HOST/PATH)."""
    if inputs["mirror"] and url.startswith(inputs["mirror"].rstrip("/") + "/"):
        return url
    parts = urlsplit(url)
    below = parts.path + ("?" + parts.query if parts.query else "")
    own = inputs["mirrors"].get(parts.netloc)
    if own:
        return own.rstrip("/") + below
    if inputs["mirror"]:
        return f"{inputs['mirror'].rstrip('/')}/{parts.netloc}{below}"
    return url


_GITHUB = "https://github.com/"
#: component of the data file → URL
URLS = {
    "kubelet": "https://dl.k8s.io/release/v{version}/bin/linux/{arch}/kubelet",
    "kubeadm": "https://dl.k8s.io/release/v{version}/bin/linux/{arch}/kubeadm",
    base_inputs.NODE_ARCHIVE: "https://dl.k8s.io/release/v{version}/kubernetes-node-linux-{arch}.tar.gz",
    "crictl": _GITHUB + "kubernetes-sigs/cri-tools/releases/download/v{version}/crictl-v{version}-linux-{arch}.tar.gz",
    "cni-plugins": _GITHUB
    + "containernetworking/plugins/releases/download/v{version}/cni-plugins-linux-{arch}-v{version}.tgz",
    "containerd": _GITHUB
    + "containerd/containerd/releases/download/v{version}/containerd-{version}-linux-{arch}.tar.gz",
    "containerd-static": _GITHUB
    + "containerd/containerd/releases/download/v{version}/containerd-static-{version}-linux-{arch}.tar.gz",
    "runc": _GITHUB + "opencontainers/runc/releases/download/v{version}/runc.{arch}",
    "cri-dockerd": _GITHUB + "Mirantis/cri-dockerd/releases/download/v{version}/cri-dockerd-{version}.{arch}.tgz",
}
#: step → the programs it fetches
_PROGRAMS = {
    "runtime": ("containerd", "runc", "crictl", "cri-dockerd"),
    "cni": ("cni-plugins",),
    "kubelet": ("kubelet", "kubeadm"),
}
_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")


def needed(node: Node, inputs: BaseInputs) -> list[tuple[str, str, str]]:
    """(name, component of the data file, version) of each artifact this machine gets."""
    result = []
    for component, version, _variable in base_inputs.needed_sums(inputs):
        name = component
        if component == "containerd" and known(node).static_containerd and version[:2] != "1.":
            component = "containerd-static"
        elif component in base_inputs.IN_NODE_ARCHIVE and not pinned_digest(node, inputs, component, version):
            component = (
                base_inputs.NODE_ARCHIVE
                if pinned_digest(node, inputs, base_inputs.NODE_ARCHIVE, version)
                else component
            )
        result.append((name, component, version))
    return result


def artifacts(node: Node, inputs: BaseInputs) -> list[Artifact]:
    """The list node_artifacts takes; what comes out of the same archive is one artifact."""
    listed: dict[str, Artifact] = {}
    for item in needed(node, inputs):
        one = _artifact(node, inputs, *item)
        listed.setdefault(one["url"], {**one, "install": []})["install"] += one["install"]
    return list(listed.values())


def missing(node: Node, inputs: BaseInputs, steps: Iterable[str] | None = None) -> list[Artifact]:
    """Those of ``artifacts`` (of these steps, or all) that node_info, asked for them, did not see as they should be."""
    there = node.get("artifacts") or {}
    wanted = {name for step in (_PROGRAMS if steps is None else steps) for name in _PROGRAMS.get(step, ())}
    listed = [one for one in artifacts(node, inputs) if one["name"] in wanted]
    return [one for one in listed if one["name"] not in there or difference(one, there[one["name"]])]


def pinned_digest(node: Node, inputs: BaseInputs, component: str, version: str) -> str | None:
    """The digest for this machine's architecture, None when none is pinned."""
    return inputs["checksums"].get(component, {}).get(version, {}).get(node["arch"])


def _artifact(node: Node, inputs: BaseInputs, name: str, component: str, version: str) -> Artifact:
    url = URLS[component].format(version=version, arch=node["arch"])
    folder = bin_dir(node, inputs)
    digest = pinned_digest(node, inputs, component, version)
    install: list[Installed]
    if component == base_inputs.NODE_ARCHIVE:
        install = [{"member": "kubernetes/node/bin/" + name, "path": f"{folder}/{name}", "mode": "0755"}]
    elif name in ("kubelet", "kubeadm", "runc"):
        install = [{"path": f"{folder}/{name}", "mode": "0755"}]
    elif name == "containerd":
        install = [
            {"member": "bin/" + program, "path": f"{folder}/{program}", "mode": "0755"} for program in _CONTAINERD
        ]
    elif name == "cni-plugins":
        install = [{"member": "*", "directory": runtime.CNI_BIN, "mode": "0755"}]
    elif name == "cri-dockerd":
        install = [{"member": "cri-dockerd/cri-dockerd", "path": folder + "/cri-dockerd", "mode": "0755"}]
    else:
        install = [{"member": name, "path": f"{folder}/{name}", "mode": "0755"}]
    result: Artifact = {
        "name": name,
        "version": version,
        "url": mirrored(url, inputs),
        "kind": "tar" if url.endswith((".tar.gz", ".tgz")) else "binary",
        "install": install,
    }
    if base_inputs.is_sha512(digest):
        result["sha512"] = digest
    else:
        result["sha256"] = digest
    return result


def pinned_images(inputs: BaseInputs) -> list[str]:
    """References that image garbage collection must leave alone: the sandbox image always, the user's when prebaked."""
    return list(dict.fromkeys([inputs["sandbox_image"], *(inputs["images"] if inputs["prebake"] else ())]))


def _archive(archive: Mapping[str, Any], inputs: BaseInputs) -> dict[str, Any]:
    return dict(archive, url=mirrored(archive["url"], inputs)) if archive.get("url") else dict(archive)


def images(inputs: BaseInputs) -> dict[str, Any]:
    """What node_images takes: ``{runtime, pull: references, archives: [{url or path, sha256}], pin: references}``."""
    return {
        "runtime": inputs["container_runtime"],
        "pull": list(dict.fromkeys([inputs["sandbox_image"], *inputs["images"]])),
        "archives": [_archive(archive, inputs) for archive in inputs["image_archives"]],
        "pin": list(dict.fromkeys([inputs["sandbox_image"], *inputs["images"]])),
    }
