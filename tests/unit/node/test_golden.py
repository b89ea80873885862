# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole plans against files that were read by people.

Three plans are whole files, golden/differences.txt makes all others of them; differences.py says how. After a change
that is meant, KUBENODE_GOLDEN=write dev/run pytest tests/unit/node/test_golden.py writes all files again.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node import differences
from tests.unit.node.differences import Blocks, blocks
from tests.unit.node.facts import NAMES, given, node
from tests.unit.node.openpgp_keys import DOCKER_LIKE, KUBERNETES_LIKE
from tests.unit.node.rendering import PROBE_SCRIPT, rendered
from tests.unit.node.samples import CA

GOLDEN = Path(__file__).parent / "golden"
TABLE = GOLDEN / "differences.txt"
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


#: choices → the plans they are written down against, and the sections whose differences they share
AGAINST = {
    "debian-13-arm64": ["debian-13"],
    "rocky-9-arm64": ["rocky-9", "debian-13-arm64"],
    "flatcar-arm64": ["flatcar", "debian-13-arm64"],
    "debian-12-distribution": ["debian-12"],
    "debian-13-distribution": ["debian-13-1.34", "debian-12-distribution"],
    "ubuntu-26.04-distribution": ["ubuntu-26.04"],
    "rocky-9-distribution": ["nothing"],
    "amzn-2023-distribution": ["amzn-2023", "ubuntu-26.04-distribution"],
    "flatcar-distribution": ["flatcar", "ubuntu-26.04-distribution"],
    "debian-13-repository": ["debian-13"],
    "rocky-10-repository": ["rocky-10", "debian-13-repository"],
    "amzn-2023-repository": ["nothing"],
    "debian-13-docker": ["debian-13"],
    "rocky-9-docker": ["rocky-9", "debian-13-docker"],
    "debian-13-everything": ["debian-13"],
    "rocky-9-everything": ["rocky-9", "debian-13-everything"],
    "debian-13-container": ["debian-13"],
    "debian-13-cgroup-1": ["nothing"],
}


def _plans() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Name of a plan → facts of its machine and variables."""
    fresh = {
        name if minor == NEWEST else "%s-%s" % (name, minor): (node(name), {"kubernetes_version": release})
        for minor, release in RELEASES.items()
        for name in NAMES
    }
    return {**fresh, **VARIANTS}


PLANS = _plans()


def _against() -> dict[str, list[str]]:
    """The plans of the table in its order, as AGAINST has them."""
    result = {name: [base] for name, base in RELATIVES.items()}
    for newer, minor in itertools.pairwise(RELEASES):
        for name in (WHOLE[0], *(name for name in NAMES if name != WHOLE[0])):
            base = name if newer == NEWEST else "%s-%s" % (name, newer)
            result["%s-%s" % (name, minor)] = [base] if name == WHOLE[0] else [base, "%s-%s" % (WHOLE[0], minor)]
    return {**result, **AGAINST}


def _table(plans: dict[str, Blocks]) -> str:
    """The table that makes these plans."""
    sections: dict[str, differences.Section] = {}
    for name, (base, *others) in _against().items():
        like = {other: sections[other].own for other in others}
        sections[name] = differences.section(base, plans, like, plans[name])
    return differences.table(sections)


@pytest.fixture(scope="module")
def golden() -> dict[str, Blocks]:
    """The plans as the files have them."""
    if os.environ.get("KUBENODE_GOLDEN") == "write":
        texts = {name: rendered(facts, given(**variables)) for name, (facts, variables) in PLANS.items()}
        for name in WHOLE:
            (GOLDEN / (name + ".txt")).write_text(texts[name], encoding="utf-8")
        TABLE.write_text(_table({name: blocks(text) for name, text in texts.items()}), encoding="utf-8")
        (GOLDEN / "runtime-probe.sh").write_text(_probe(), encoding="utf-8")
    whole = {name: blocks((GOLDEN / (name + ".txt")).read_text(encoding="utf-8")) for name in WHOLE}
    sections = differences.read(TABLE.read_text(encoding="utf-8"))
    return {name: differences.made(name, sections, whole) for name in [*whole, *sections]}


def _probe() -> str:
    header = "#!/bin/sh\n# Copyright (c) 2026 kubenode.provision authors\n# SPDX-License-Identifier: GPL-3.0-or-later\n"
    return PROBE_SCRIPT.replace("#!/bin/sh\n", header, 1)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan(golden, name):
    facts, variables = PLANS[name]
    text = rendered(facts, given(**variables))
    if text != differences.joined(golden[name]):
        changed = differences.shown(differences.differences(golden[name], blocks(text)))
        lines = [
            "the plan %s differs from its golden one:" % name,
            *changed,
            "read what changed; KUBENODE_GOLDEN=write takes it",
        ]
        pytest.fail("\n".join(lines), pytrace=False)


def test_the_probe(golden):
    assert (GOLDEN / "runtime-probe.sh").read_text(encoding="utf-8") == _probe()


def test_the_table_is_as_it_would_be_written(golden):
    assert TABLE.read_text(encoding="utf-8") == _table(golden)


def test_no_golden_file_is_left_over(golden):
    assert golden.keys() == PLANS.keys()
    assert {path.name for path in GOLDEN.iterdir()} == {
        *(name + ".txt" for name in WHOLE),
        TABLE.name,
        "runtime-probe.sh",
    }
