# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of kubelet flags and fields, and how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.kubelet_config import (
    FIELDS,
    FLAGS,
    read_tables,
)
from dev.kubelet_api import RELEASES, render

MINORS = ("1.34", "1.35", "1.36", "1.37")

#: what a real kubelet 1.36 refuses as an unknown flag, and what it takes without a word (observed)
GONE = [
    "container-runtime",
    "network-plugin",
    "cni-bin-dir",
    "cloud-config",
    "register-schedulable",
    "keep-terminated-pod-volumes",
    "azure-container-registry-config",
    "really-crash-for-testing",
    "master-service-namespace",
    "allow-privileged",
    "dynamic-config-dir",
    "non-masquerade-cidr",
    "image-pull-progress-deadline",
]
CURRENT = [
    "config",
    "config-dir",
    "kubeconfig",
    "bootstrap-kubeconfig",
    "cert-dir",
    "root-dir",
    "hostname-override",
    "node-ip",
    "node-labels",
    "provider-id",
    "cloud-provider",
    "fail-cgroupv1",
    "image-credential-provider-config",
    "image-credential-provider-bin-dir",
    "runtime-cgroups",
    "seccomp-default",
    "v",
]
DEPRECATED = [
    "container-runtime-endpoint",
    "cgroup-driver",
    "register-with-taints",
    "cluster-dns",
    "rotate-certificates",
]


@pytest.mark.parametrize("minor", MINORS)
def test_flags_are_those_that_a_real_kubelet_knows(minor: str) -> None:
    known = FLAGS[minor]
    assert not [flag for flag in GONE if flag in known]
    assert {flag: known.get(flag) for flag in CURRENT} == dict.fromkeys(CURRENT, "current")
    assert {flag: known.get(flag) for flag in DEPRECATED} == dict.fromkeys(DEPRECATED, "deprecated")
    assert ("pod-infra-container-image" in known) is (minor == "1.34")
    # of cAdvisor's flags
    assert known["housekeeping-interval"] == "current"
    assert ("containerd" in known) is (minor != "1.37")


@pytest.mark.parametrize("minor", MINORS)
def test_fields_are_nested_and_typed(minor: str) -> None:
    known = FIELDS[minor]
    assert known["authentication"]["x509"] == {"clientCAFile": "string"}
    assert known["evictionHard"] == {"*": "string"}
    assert known["registerWithTaints"][0]["effect"] == "string"
    assert known["shutdownGracePeriod"] == "duration"
    assert known["logging"]["flushFrequency"] == "duration|int"
    assert known["memorySwap"] == {"swapBehavior": "string"}
    assert {"apiVersion", "kind", "failCgroupV1", "userNamespaces", "crashLoopBackOff"} <= set(known)
    assert ("memoryReservationPolicy" in known) is (minor >= "1.36")
    assert ("tlsCurvePreferences" in known) is (minor >= "1.36")
    assert ("defaultPodSysctls" in known) is (minor == "1.37")


def test_what_is_written_says_what_was_found(tmp_path: Path) -> None:
    nested = {"count": "int", "sizes": {"*": "quantity"}}
    found = {
        "1.90": ({"old": "deprecated", "config": "current"}, {"mode": "string", "nested": nested}),
        "1.91": ({"new": "current", "config": "current"}, {"more": ["int"], "nested": nested}),
    }
    (tmp_path / "tables.json").write_text(render(found, {"1.90": "a test", "1.91": "another"}))
    known_flags, known_fields = read_tables(tmp_path / "tables.json")
    assert known_flags == {minor: table[0] for minor, table in found.items()}
    assert known_fields == {minor: table[1] for minor, table in found.items()}


def test_every_table_is_of_a_release() -> None:
    assert [version.rpartition(".")[0] for version in RELEASES] == list(MINORS) == sorted(FLAGS)
