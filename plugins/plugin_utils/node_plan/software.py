# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What base installs: packages and their repositories; programs by pinned digest, container images, their mirrors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.node_artifacts import difference
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import base_inputs, host_settings, plan_types, runtime, systems, trust
from .plan_types import BaseInputs
from .systems import AMAZON, DEBIAN, RHEL, bin_dir, known

if TYPE_CHECKING:
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


def needed_programs(node: Node, inputs: BaseInputs) -> list[tuple[str, str, str]]:
    """(name, component of the data file, version) of each artifact this machine gets."""
    result = []
    for component, version, _variable in base_inputs.needed_sums(inputs):
        name = component
        if component == "containerd" and known(node).static_containerd and version[:2] != "1.":
            component = "containerd-static"
        elif (
            component in base_inputs.IN_NODE_ARCHIVE
            and not pinned_digest(node, inputs, component, version)
            and pinned_digest(node, inputs, base_inputs.NODE_ARCHIVE, version)
        ):
            component = base_inputs.NODE_ARCHIVE
        result.append((name, component, version))
    return result


def artifacts(node: Node, inputs: BaseInputs) -> list[Artifact]:
    """The list node_artifacts takes; what comes out of the same archive is one artifact."""
    listed: dict[str, Artifact] = {}
    for item in needed_programs(node, inputs):
        one = _artifact(node, inputs, *item)
        listed.setdefault(one["url"], {**one, "install": []})["install"] += one["install"]
    return list(listed.values())


def missing_artifacts(node: Node, inputs: BaseInputs, steps: Iterable[str] | None = None) -> list[Artifact]:
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


def images(inputs: BaseInputs) -> dict[str, Any]:
    """What node_images takes: ``{runtime, pull: references, archives: [{url or path, sha256}], pin: references}``."""
    references = list(dict.fromkeys([inputs["sandbox_image"], *inputs["images"]]))
    archives = [
        {**archive, "url": mirrored(archive["url"], inputs)} if archive.get("url") else archive
        for archive in inputs["image_archives"]
    ]
    return {"runtime": inputs["container_runtime"], "pull": references, "archives": archives, "pin": references}


_OF_DNF = (
    "ca-certificates", "conntrack-tools", "container-selinux", "ethtool", "iptables-nft", "kmod", "socat", "util-linux",
)  # fmt: skip
_BASE = {
    DEBIAN: ("ca-certificates", "conntrack", "ethtool", "iptables", "kmod", "mount", "socat", "util-linux"),
    RHEL: _OF_DNF,
    AMAZON: _OF_DNF,
}
#: Its parser: without it nothing is confined where the kernel has AppArmor, and Docker starts no container.
_APPARMOR = "apparmor"
#: br_netfilter, ip_set and what iptables needs, on the RHEL family 10; there is one for each kernel.
_MODULES = "kernel-modules-extra"
_OWN_KERNEL = re.compile(r"(.+\.el10(?:_[0-9]+)?)(?:\.(?:x86_64|aarch64))?\Z")
_IPVS = ("ipset", "ipvsadm")
_STORAGE = {
    "nfs": {DEBIAN: "nfs-common", RHEL: "nfs-utils", AMAZON: "nfs-utils"},
    "cifs": {DEBIAN: "cifs-utils", RHEL: "cifs-utils", AMAZON: "cifs-utils"},
    "iscsi": {DEBIAN: "open-iscsi", RHEL: "iscsi-initiator-utils", AMAZON: "iscsi-initiator-utils"},
    # the RHEL family gets Ceph's client from Ceph's own repository, which is the user's to set up
    "ceph": {DEBIAN: "ceph-common", RHEL: "ceph-common"},
    "gluster": {DEBIAN: "glusterfs-client", RHEL: "glusterfs-fuse"},
}
_VERSIONLOCK = "python3-dnf-plugin-versionlock"


def without_storage(node: Node, inputs: BaseInputs) -> list[str]:
    """Storage clients that this system has no package of."""
    family = known(node).family
    return [name for name in inputs["storage_clients"] if family not in _STORAGE[name]]


def wanted(node: Node, inputs: BaseInputs) -> dict[str, str | None]:
    """Package name → version it has to have, None for any; in the order in which the package manager gets them."""
    system = known(node)
    if system.package_manager == "none":
        return {}
    names = dict.fromkeys(_BASE[system.family])
    if system.family == DEBIAN and not node.get("container"):
        names[_APPARMOR] = None
    own = _OWN_KERNEL.match(node.get("kernel") or "") if system.family == RHEL else None
    if own and inputs["manage_kernel"] and not node.get("container"):
        names[_MODULES] = own[1]
    if inputs["ipvs"]:
        names.update(dict.fromkeys(_IPVS))
    if inputs["manage_runtime"]:
        names.update(_runtime(node, inputs))
    if inputs["manage_kubelet"] and inputs["kubelet_source"] == "repository":
        names["kubelet"] = inputs["kubernetes_version"]
        if inputs["kubeadm"]:
            names["kubeadm"] = inputs["kubernetes_version"]
    if held(node, inputs) and system.package_manager == "dnf":
        names[_VERSIONLOCK] = None
    if (
        inputs["manage_time"]
        and inputs["time_sync"] == "ensure"
        and host_settings.time_service(node) is None
        and not node.get("container")
    ):
        names["systemd-timesyncd" if system.family == DEBIAN else "chrony"] = None
    for client in inputs["storage_clients"]:
        if system.family in _STORAGE[client]:
            names[_STORAGE[client][system.family]] = None
    for name in inputs["packages_extra"]:
        bare, _sign, version = name.partition("=")
        names[bare] = version or None
    return names


def _runtime(node: Node, inputs: BaseInputs) -> dict[str, str | None]:
    if inputs["container_runtime"] == "docker":
        return dict.fromkeys(runtime.docker_packages(node, inputs))
    package = runtime.containerd_package(node, inputs)
    if not package:
        return {}
    names = {package: inputs["containerd_wanted"] or None}
    if package == "containerd":
        names["runc"] = None
    return names


def missing_packages(node: Node, inputs: BaseInputs) -> list[str]:
    """What of these is to be installed, as the package manager spells it."""
    installed = node.get("packages") or {}
    joined = "=" if known(node).package_manager == "apt" else "-"
    missing = []
    for name, version in wanted(node, inputs).items():
        if not _fits(installed.get(name), version):
            # a release number matches every build of it
            exact = version + "-*" if version and systems.is_release(version) else version
            missing.append(name + joined + exact if exact else name)
    return missing


def _fits(installed: str | None, version: str | None) -> bool:
    if not installed:
        return False
    if version is None or installed == version:
        return True
    return systems.is_release(version) and systems.plain_version(installed) == version


def held(node: Node, inputs: BaseInputs) -> list[str]:
    """Packages that only this role may change: those that come from a repository of their project."""
    if known(node).package_manager == "none":
        return []
    names: list[str] = []
    if inputs["manage_runtime"] and inputs["containerd_source"] == "repository":
        if inputs["container_runtime"] == "docker":
            names = runtime.docker_packages(node, inputs) if runtime.docker_from_repository(node, inputs) else []
        else:
            names = [runtime.containerd_package(node, inputs)]
    if inputs["manage_kubelet"] and inputs["kubelet_source"] == "repository":
        names = [*names, "kubelet", "kubeadm"] if inputs["kubeadm"] else [*names, "kubelet"]
    return [name for name in names if name]


def every_name(inputs: BaseInputs) -> list[str]:
    """Every package name that any supported system may be asked about, for the first look at a machine."""
    names = [name for family in _BASE.values() for name in family]
    names += [*_IPVS, _APPARMOR, _MODULES, _VERSIONLOCK, "systemd-timesyncd", "chrony", "kubelet", "kubeadm"]
    names += ["containerd", "runc", "containerd.io", "docker.io", "docker-cli", "docker", "docker-ce", "docker-ce-cli"]
    names += [name for client in inputs["storage_clients"] for name in _STORAGE[client].values()]
    names += [name.partition("=")[0] for name in inputs["packages_extra"]]
    return list(dict.fromkeys(names))


_KUBERNETES = "https://pkgs.k8s.io/core:/stable:/v%s/%s/"
_DOCKER = "https://download.docker.com/linux/%s"


def repository_files(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Key and source of each repository that is used."""
    system = known(node)
    result: list[Setting] = []
    if system.package_manager == "none":
        return result
    for name in base_inputs.needed_keys(inputs):
        if name == "docker" and not system.docker_repository:
            continue
        folder = "/etc/apt/keyrings" if system.package_manager == "apt" else "/etc/pki/rpm-gpg"
        key = f"{folder}/kubenode-{name}.asc"
        text = inputs["repository_keys"][name].strip() + "\n"
        result.append(plan_types.file("packages/key-" + name, key, text))
        write = _apt if system.package_manager == "apt" else _dnf
        result.append(write(node, inputs, name, key))
    return result


def sources(node: Node, inputs: BaseInputs) -> list[Setting]:
    """What has to be on the machine before packages are fetched; nothing when none is missing."""
    if not inputs["manage_packages"] or not missing_packages(node, inputs):
        return []
    result = trust.ca(node, inputs) if inputs["manage_ca"] else []
    if inputs["manage_proxy"]:
        result += [item for item in trust.proxy(node, inputs) if item["id"] == "proxy/apt"]
    return result + repository_files(node, inputs)


def _apt(node: Node, inputs: BaseInputs, name: str, key: str) -> Setting:
    if name == "kubernetes":
        url = _KUBERNETES % (inputs["kubernetes_minor"], "deb")
        suites = "Suites: /\n"
    else:
        url = _DOCKER % known(node).docker_repository
        suites = f"Suites: {node['os']['codename']}\nComponents: stable\n"
    text = "{}Types: deb\nURIs: {}\n{}Architectures: {}\nSigned-By: {}\n".format(
        plan_types.HEADER, mirrored(url, inputs), suites, node["arch"], key
    )
    return plan_types.file("packages/source-" + name, f"/etc/apt/sources.list.d/kubenode-{name}.sources", text)


def _dnf(node: Node, inputs: BaseInputs, name: str, key: str) -> Setting:
    if name == "kubernetes":
        url, title = _KUBERNETES % (inputs["kubernetes_minor"], "rpm"), "Kubernetes"
        # metadata of Kubernetes' repository is signed as well
        signed = "repo_gpgcheck=1\n"
    else:
        release = known(node).version
        arch = {"amd64": "x86_64", "arm64": "aarch64"}[node["arch"]]
        url, title = f"{_DOCKER % known(node).docker_repository}/{release}/{arch}/stable", "Docker"
        signed = ""
    text = "{}[kubenode-{}]\nname={}\nbaseurl={}\nenabled=1\ngpgcheck=1\n{}gpgkey=file://{}\n".format(
        plan_types.HEADER, name, title, mirrored(url, inputs).replace("%", "%%"), signed, key
    )
    return plan_types.file("packages/source-" + name, f"/etc/yum.repos.d/kubenode-{name}.repo", text)
