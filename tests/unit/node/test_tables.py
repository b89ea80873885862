# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of kubelet flags and fields, and the reader of Go sources that makes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.kubelet_config import (
    FIELDS,
    FLAGS,
    read_tables,
)
from dev.kubelet_api import RELEASES, Missing, Sources, arguments, closing, fields, flags, for_linux, render, tables
from tests.folders import put

KUBELET = Path(__file__).with_name("kubelet_sources.txt")
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


@pytest.fixture
def source(tmp_path: Path) -> Sources:
    """A small kubelet in Go, with every form that the real one uses."""
    for part in re.split(r"^-- ", KUBELET.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _dashes, text = part.partition(" --\n")
        put(tmp_path / name, text)
    return below(tmp_path)


def below(folder: Path) -> Sources:
    """The packages of a folder, by their places in it."""
    return Sources({str(path.parent.relative_to(folder)): path.parent for path in folder.rglob("*.go")})


def test_struct_types_become_nested_fields(source: Sources) -> None:
    assert fields(source) == {
        "apiVersion": "string",
        "kind": "string",
        "someField": "bool",
        "period": "duration",
        "mode": "string",
        "headers": {"*": ["string"]},
        "taints": [{"key": "string"}],
        "nested": {"count": "int", "sizes": {"*": "quantity"}},
    }


def test_registrations_become_flags(source: Sources) -> None:
    assert flags(source) == {
        "help": "current",
        "config": "current",
        "node-labels": "current",
        "old-thing": "deprecated",
        "some-field": "deprecated",
        "log-flush-frequency": "deprecated",
        "v": "current",
        "housekeeping-interval": "current",
        "boot-id-file": "deprecated",
    }


def test_what_is_written_says_what_was_found(source: Sources, tmp_path: Path) -> None:
    found = tables({"1.90": source})
    found["1.91"] = {"new": "current"}, {"more": "int", "nested": found["1.90"][1]["nested"]}
    (tmp_path / "tables.json").write_text(render(found, {"1.90": "a test", "1.91": "another"}))
    known_flags, known_fields = read_tables(tmp_path / "tables.json")
    assert known_flags == {minor: table[0] for minor, table in found.items()}
    assert known_fields == {minor: table[1] for minor, table in found.items()}


def test_every_table_is_of_a_release() -> None:
    assert [version.rpartition(".")[0] for version in RELEASES] == list(MINORS) == sorted(FLAGS)


def test_sources_that_lack_a_type_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "k8s.io/kubelet/config/v1beta1/types.go", "package v1beta1\n")
    with pytest.raises(Missing, match="no type KubeletConfiguration"):
        fields(below(tmp_path))


@pytest.mark.parametrize(
    ("head", "built"),
    [
        ("//go:build linux\n", True),
        ("//go:build !linux\n", False),
        ("//go:build windows || (linux && !arm)\n", True),
        ("// +build !windows\n", True),
        ("// +build linux,!cgo windows\n", False),
        ("", True),
    ],
)
def test_build_constraints(head: str, built: bool) -> None:
    assert for_linux(head + "\npackage options\n") is built


def test_arguments_end_where_the_call_ends() -> None:
    text = 'f(&a.b, "x, (y", g(1, 2), `raw ) "`, []int{1, 2}) + h(3)'
    assert closing(text, 1) == text.index(") + h")
    assert arguments(text, 1) == ["&a.b", '"x, (y"', "g(1, 2)", '`raw ) "`', "[]int{1, 2}"]
