# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole plans against files that were read by people.

Three plans are whole files, golden/differences.txt has what all others differ by. After a change that is meant,
KUBENODE_GOLDEN=write dev/run pytest tests/unit/node/test_golden.py writes all files again.
"""

from __future__ import annotations

import difflib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.facts import NAMES, given, node
from tests.unit.node.openpgp_keys import DOCKER_LIKE, KUBERNETES_LIKE
from tests.unit.node.rendering import PROBE_SCRIPT, rendered
from tests.unit.node.samples import CA

GOLDEN = Path(__file__).parent / "golden"
#: minor → release, the newest first
RELEASES = {"1.36": "1.36.4", "1.35": "1.35.8", "1.34": "1.34.11"}
NEWEST = "1.36"
#: plans that are whole files
WHOLE = ("debian-13", "rocky-9", "flatcar")
#: other systems → those they are written down against
RELATIVES = {
    "ubuntu-22.04": "debian-13",
    "ubuntu-24.04": "debian-13",
    "ubuntu-26.04": "ubuntu-24.04",
    "debian-12": "debian-13",
    "rocky-10": "rocky-9",
    "almalinux-9": "rocky-9",
    "almalinux-10": "rocky-10",
    "rhel-9": "rocky-9",
    "rhel-10": "rocky-10",
    "amzn-2023": "rocky-9",
}
_KEYS = {
    "repository_keys": {"kubernetes": KUBERNETES_LIKE.text, "docker": DOCKER_LIKE.text},
    "repository_key_fingerprints": {"kubernetes": [KUBERNETES_LIKE.fingerprint], "docker": [DOCKER_LIKE.fingerprint]},
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
#: choices → the plans they are written down against; one against nothing is there as a whole
AGAINST = {
    "debian-13-arm64": "debian-13",
    "rocky-9-arm64": "rocky-9",
    "flatcar-arm64": "flatcar",
    "debian-12-distribution": "debian-12",
    "debian-13-distribution": "debian-13-1.34",
    "ubuntu-26.04-distribution": "ubuntu-26.04",
    "rocky-9-distribution": "nothing",
    "amzn-2023-distribution": "amzn-2023",
    "flatcar-distribution": "flatcar",
    "debian-13-repository": "debian-13",
    "rocky-10-repository": "rocky-10",
    "amzn-2023-repository": "nothing",
    "debian-13-docker": "debian-13",
    "rocky-9-docker": "rocky-9",
    "debian-13-everything": "debian-13",
    "rocky-9-everything": "rocky-9",
    "debian-13-container": "debian-13",
    "debian-13-cgroup-1": "nothing",
}
#: how the table of differences begins
HEAD = """\
Every plan that is no whole file, by what it differs by from the plan that RELATIVES and AGAINST of test_golden.py
name. Each section is a block of plans and what becomes of it, as a unified diff without the lines around it; order
stands for the names of the blocks. KUBENODE_GOLDEN=write writes this file.
"""


def _plans() -> tuple[dict[str, tuple[dict[str, Any], dict[str, Any]]], dict[str, str]]:
    """Name of a plan → facts of its machine and variables, and name of a plan → the one it is written down against."""
    plans, against, newer = {}, dict(RELATIVES), ""
    for minor, release in RELEASES.items():
        for name in NAMES:
            own = name if minor == NEWEST else f"{name}-{minor}"
            plans[own] = (node(name), {"kubernetes_version": release})
            if minor != NEWEST:
                against[own] = name if newer == NEWEST else f"{name}-{newer}"
        newer = minor
    return {**plans, **VARIANTS}, {**against, **AGAINST}


PLANS, OTHERS = _plans()


@cache
def text(name: str) -> str:
    """A rendered plan."""
    facts, variables = PLANS[name]
    return rendered(facts, given(**variables))


@cache
def blocks(name: str) -> dict[str, list[str]]:
    """Lines of a plan by block: its head, which is called plan, each artifact, each setting; and their order."""
    if name == "nothing":
        return {}
    head, *others = re.split(r"\n\n(?=\S)", text(name).removesuffix("\n"))
    keys = ["plan", *(re.match(r"(?:== )?([^:\s]+)", block)[1] for block in others)]  # type: ignore[index]
    assert len(keys) == len(set(keys)), "two blocks have one name"
    return {**dict(zip(keys, (block.split("\n") for block in [head, *others]), strict=True)), "order": keys}


def differences() -> str:
    """The table: each change of a block with all plans that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, base in OTHERS.items():
        for key, lines in blocks(name).items():
            before = blocks(base).get(key, [])
            if lines != before:
                change = "\n".join([*difflib.unified_diff(before, lines, lineterm="", n=0)][2:])
                found.setdefault((key, change), []).append(name)
    return HEAD + "".join(f"\n### {key}: {', '.join(names)}\n{change}\n" for (key, change), names in found.items())


def probe() -> str:
    header = "#!/bin/sh\n# Copyright (c) 2026 kubenode.provision authors\n# SPDX-License-Identifier: GPL-3.0-or-later\n"
    return PROBE_SCRIPT.replace("#!/bin/sh\n", header, 1)


#: file → what writes it, and what stands between its pieces that are compared
FILES = {
    **{f"{name}.txt": (lambda name=name: text(name), "\n") for name in WHOLE},
    "differences.txt": (differences, "\n\n"),
    "runtime-probe.sh": (probe, "\n"),
}


@pytest.mark.parametrize("file", FILES)
def test_plans_are_those_that_were_read(file):
    make, between = FILES[file]
    found = make()
    if os.environ.get("KUBENODE_GOLDEN") == "write":
        (GOLDEN / file).write_text(found, encoding="utf-8")
    known = (GOLDEN / file).read_text(encoding="utf-8")
    if found != known:
        changed = difflib.unified_diff(known.split(between), found.split(between), "golden", "now", lineterm="", n=0)
        wrong = [f"golden/{file} is not what is planned:", *changed, "read it; KUBENODE_GOLDEN=write takes it"]
        pytest.fail("\n".join(wrong), pytrace=False)


def test_every_plan_has_its_place_and_no_file_is_left_over():
    assert {*WHOLE, *OTHERS} == PLANS.keys()
    assert {path.name for path in GOLDEN.iterdir()} == FILES.keys()
