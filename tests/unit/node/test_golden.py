# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole plans against files that were read by people; KUBENODE_GOLDEN=write renders them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node.base import health
from tests.unit.node.facts import NAMES, given, node
from tests.unit.node.keys import DOCKER_LIKE, KUBERNETES_LIKE
from tests.unit.node.rendering import rendered
from tests.unit.node.samples import CA

GOLDEN = Path(__file__).parent / "golden"
RELEASES = {"1.34": "1.34.11", "1.35": "1.35.8", "1.36": "1.36.4"}
FRESH = [(name, minor) for name in NAMES for minor in RELEASES]
_KEYS = {
    "repository_keys": {"kubernetes": KUBERNETES_LIKE.text, "docker": DOCKER_LIKE.text},
    "repository_key_fingerprints": {
        "kubernetes": [KUBERNETES_LIKE.fingerprint],
        "docker": [DOCKER_LIKE.fingerprint],
    },
}
_ALL = {
    "ipvs": True,
    "storage_clients": ["nfs", "iscsi"],
    "packages_extra": ["jq"],
    "kernel_modules": ["wireguard"],
    "sysctls": {"net.core.somaxconn": 4096, "vm.overcommit_memory": None, "kernel.panic": 20},
    "swap": "limited",
    "mirror": "https://mirror.example/upstream",
    "mirrors": {"dl.k8s.io": "http://files.example:8080"},
    "registry_mirrors": {
        "docker.io": [{"url": "https://mirror.example", "username": "reader", "password": 'p"w\\%$', "ca": CA}],
        "_default": [{"url": "http://cache.example:5000/v2/all", "override_path": True, "skip_verify": True}],
    },
    "containerd_config": {"metrics": {"address": "127.0.0.1:1338"}},
    "http_proxy": "http://user:pa%20ss@proxy.example:3128",
    "https_proxy": "http://proxy.example:3128",
    "no_proxy": "10.0.0.0/8, example.internal",
    "extra_ca": [CA],
    "selinux": "enforcing",
    "firewall": "open",
    "prebake": True,
    "images": ["registry.example/cni:v1"],
    "kubeadm": True,
}
VARIANTS = {
    "debian-13-arm64": (node("debian-13", arch="arm64"), {}),
    "rocky-9-arm64": (node("rocky-9", arch="arm64"), {}),
    "flatcar-arm64": (node("flatcar", arch="arm64"), {}),
    "debian-12-distribution": (node("debian-12"), {"containerd_source": "distribution", "version_check": "warn"}),
    "debian-13-distribution": (
        node("debian-13", packages={"containerd": "1.7.24~ds1-6+deb13u1", "runc": "1.1.15+ds1-2+b4"}),
        {"containerd_source": "distribution", "kubernetes_version": "1.34.11", "version_check": "warn"},
    ),
    "ubuntu-26.04-distribution": (node("ubuntu-26.04"), {"containerd_source": "distribution"}),
    "rocky-9-distribution": (node("rocky-9"), {"containerd_source": "distribution"}),
    "amzn-2023-distribution": (
        node("amzn-2023", candidates={"containerd": "2.2.1-1.amzn2023.0.1"}),
        {"containerd_source": "distribution"},
    ),
    "flatcar-distribution": (
        node("flatcar", binaries={"containerd": {"path": "/usr/bin/containerd", "version": "2.2.0"}}),
        {"containerd_source": "distribution"},
    ),
    "debian-13-repository": (
        node("debian-13"),
        {"containerd_source": "repository", "kubelet_source": "repository", "kubeadm": True, **_KEYS},
    ),
    "rocky-10-repository": (
        node("rocky-10"),
        {"containerd_source": "repository", "containerd_version": "2.2.7", "kubelet_source": "repository", **_KEYS},
    ),
    "amzn-2023-repository": (node("amzn-2023"), {"containerd_source": "repository", **_KEYS}),
    "debian-13-docker": (
        node("debian-13"),
        {"container_runtime": "docker", "registry_mirrors": {"docker.io": [{"url": "https://mirror.example"}]}},
    ),
    "rocky-9-docker": (node("rocky-9"), {"container_runtime": "docker", "containerd_source": "repository", **_KEYS}),
    "debian-13-everything": (node("debian-13"), _ALL),
    "rocky-9-everything": (node("rocky-9"), _ALL),
    "debian-13-container": (node("debian-13", container=True), {}),
    "debian-13-cgroup-1": (node("debian-13", cgroup=1), {"kubernetes_version": "1.35.8"}),
}


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("KUBENODE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "read what changed; KUBENODE_GOLDEN=write takes it"


@pytest.mark.parametrize(("name", "minor"), FRESH)
def test_a_fresh_machine(name, minor):
    compare("%s-%s.txt" % (name, minor), rendered(node(name), given(kubernetes_version=RELEASES[minor])))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_choice(variant):
    facts, variables = VARIANTS[variant]
    compare(variant + ".txt", rendered(facts, given(**variables)))


def test_the_probe():
    header = "#!/bin/sh\n# Copyright (c) 2026 kubenode.provision authors\n# SPDX-License-Identifier: GPL-3.0-or-later\n"
    compare("runtime-probe.sh", health.SCRIPT.replace("#!/bin/sh\n", header, 1))


def test_no_golden_file_is_left_over():
    expected = {"%s-%s.txt" % case for case in FRESH} | {name + ".txt" for name in VARIANTS} | {"runtime-probe.sh"}
    assert {path.name for path in GOLDEN.iterdir()} == expected
