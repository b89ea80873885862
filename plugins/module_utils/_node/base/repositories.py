# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Package repositories of Kubernetes and Docker, each trusted for its own key only."""

from __future__ import annotations

from typing import Any

from . import checks, mirrors, packages, parts, trust
from .systems import known

_KUBERNETES = "https://pkgs.k8s.io/core:/stable:/v%s/%s/"
_DOCKER = "https://download.docker.com/linux/%s"


def files(node, inputs):
    """Key and source of each repository that is used."""
    system = known(node)
    result: list[dict[str, Any]] = []
    if system.package_manager == "none":
        return result
    for name in checks.needed_keys(inputs):
        if name == "docker" and not system.docker_repository:
            continue
        suffix = "asc"
        folder = "/etc/apt/keyrings" if system.package_manager == "apt" else "/etc/pki/rpm-gpg"
        key = "%s/kubenode-%s.%s" % (folder, name, suffix)
        text = inputs["repository_keys"][name].strip() + "\n"
        result.append(parts.file("packages/key-" + name, key, text))
        write = _apt if system.package_manager == "apt" else _dnf
        result.append(write(node, inputs, name, key))
    return result


def repositories(node, inputs):
    """What has to be on the machine before packages are fetched; nothing when none is missing."""
    if not inputs["manage_packages"] or not packages.packages(node, inputs)["missing"]:
        return []
    result = trust.ca(node, inputs) if inputs["manage_ca"] else []
    if inputs["manage_proxy"]:
        result += [item for item in trust.proxy(node, inputs) if item["id"] == "proxy/apt"]
    return result + files(node, inputs)


def _apt(node, inputs, name, key):
    if name == "kubernetes":
        url = _KUBERNETES % (inputs["kubernetes_minor"], "deb")
        suites = "Suites: /\n"
    else:
        url = _DOCKER % known(node).docker_repository
        suites = "Suites: %s\nComponents: stable\n" % node["os"]["codename"]
    text = "%sTypes: deb\nURIs: %s\n%sArchitectures: %s\nSigned-By: %s\n" % (
        parts.HEADER,
        mirrors.mirrored(url, inputs),
        suites,
        node["arch"],
        key,
    )
    return parts.file("packages/source-" + name, "/etc/apt/sources.list.d/kubenode-%s.sources" % name, text)


def _dnf(node, inputs, name, key):
    if name == "kubernetes":
        url, title = _KUBERNETES % (inputs["kubernetes_minor"], "rpm"), "Kubernetes"
        # metadata of Kubernetes' repository is signed as well
        signed = "repo_gpgcheck=1\n"
    else:
        release = known(node).version
        arch = {"amd64": "x86_64", "arm64": "aarch64"}[node["arch"]]
        url, title = "%s/%s/%s/stable" % (_DOCKER % known(node).docker_repository, release, arch), "Docker"
        signed = ""
    text = "%s[kubenode-%s]\nname=%s\nbaseurl=%s\nenabled=1\ngpgcheck=1\n%sgpgkey=file://%s\n" % (
        parts.HEADER,
        name,
        title,
        mirrors.mirrored(url, inputs).replace("%", "%%"),
        signed,
        key,
    )
    return parts.file("packages/source-" + name, "/etc/yum.repos.d/kubenode-%s.repo" % name, text)
