# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions, pairs that work, and the data file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_inputs, software, systems
from tests.unit.node.facts import data
from tests.unit.node.samples import unhurried

NUMBER = st.integers(0, 400)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1.36.4", (1, 36, 4)),
        ("v2.1", (2, 1, 0)),
        ("1.7.24~ds1-6+deb13u1", (1, 7, 24)),
        ("5:27.3.1-1~debian.12~bookworm", (27, 3, 1)),
        ("2.2.1-1.amzn2023.0.1", (2, 2, 1)),
        ("", None),
        ("none", None),
    ],
)
def test_numbers(text, found):
    assert systems.numbers(text) == found


@unhurried
@given(NUMBER, NUMBER, NUMBER)
def test_a_release_is_its_own_plain_form(major, minor, patch):
    text = f"{major}.{minor}.{patch}"
    assert systems.is_release(text)
    assert systems.plain_version(text) == text
    assert systems.minor(text) == f"{major}.{minor}"


@pytest.mark.parametrize("text", ["1.36", "v1.36.4", "1.36.4-rc.0", "1.36.4\n", "1.36.4 ", "", "latest"])
def test_what_is_no_release(text):
    assert not systems.is_release(text)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.33.9", "old"), ("1.34.1", "old"), ("1.35.0", "new"), ("1.36.9", "newest"), ("1.40.0", "newest")],
)
def test_for_minor(version, expected):
    assert systems.for_minor({"1.36": "newest", "1.34": "old", "1.35": "new"}, version) == expected


def test_a_minor_before_the_known_ones_gets_the_pause_image_of_the_oldest():
    assert systems.for_minor(data()["defaults"]["pause"], "1.33.9") == "3.10.1"


@pytest.mark.parametrize(
    ("minor", "containerd", "works"),
    [
        ("1.34", "1.7.28", True),
        ("1.34", "1.7.24", False),
        ("1.34", "1.6.36", False),
        ("1.34", "2.0.6", True),
        ("1.34", "2.3.4", True),
        ("1.35", "1.7.28", True),
        # 2.0 is not on the project's list for 1.35
        ("1.35", "2.0.11", False),
        ("1.35", "2.1.4", False),
        ("1.35", "2.2.0", True),
        ("1.36", "1.7.34", False),
        ("1.36", "2.1.9", False),
        ("1.36", "2.2.0", True),
        ("1.36", "2.4.0", True),
        ("1.37", "2.2.7", False),
        ("1.37", "2.3.0", True),
        ("1.38", "2.1.9", False),
    ],
)
def test_pairs(minor, containerd, works):
    minimums = systems.for_minor(data()["matrix"], minor + ".0")["containerd"]
    assert systems.satisfies(containerd, minimums) is works


def test_every_checksum_is_one():
    for component, by_version in data()["checksums"].items():
        assert by_version, component
        for version, by_arch in by_version.items():
            assert systems.is_release(version)
            assert set(by_arch) == {"amd64", "arm64"}, (component, version)
            digits = 128 if component == "kubernetes-node" else 64
            assert all(re.fullmatch(f"[0-9a-f]{{{digits}}}", digest) for digest in by_arch.values())
            assert len(set(by_arch.values())) == 2


def test_every_url_has_checksums():
    assert set(software.URLS) <= set(data()["checksums"])


@pytest.mark.parametrize("minor", ["1.34", "1.35", "1.36", "1.37"])
@pytest.mark.parametrize("runtime", ["containerd", "docker"])
def test_defaults_are_pinned_and_work(minor, runtime):
    kubelets = [*data()["checksums"]["kubelet"], *data()["checksums"]["kubernetes-node"]]
    newest = max((item for item in kubelets if item.startswith(minor + ".")), key=systems.numbers)
    taken = base_inputs.normalised(
        {"kubernetes_version": newest, "container_runtime": runtime, "kubeadm": True}, data()
    )
    minimums = systems.for_minor(data()["matrix"], newest)["containerd"]
    assert systems.satisfies(taken["containerd_version"], minimums)
    # there is no crictl of 1.37 yet
    assert systems.minor(taken["crictl_version"]) == min(minor, "1.36")


def test_the_default_of_the_data_file_is_that_of_the_role():
    assert data()["defaults"]["kubernetes"] == role_specs.options("base")["kubernetes_version"]["default"]
