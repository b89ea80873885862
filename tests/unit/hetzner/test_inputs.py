# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, labels and user data: what is refused before anything is looked up."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import FleetError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import (
    name_findings,
    refuse_findings,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import (
    LONGEST_USER_DATA,
    machine_findings,
)


def test_a_name_that_is_none_is_named_with_its_place():
    (finding,) = name_findings([{"name": "good"}, {"name": "a_b"}])
    assert finding.startswith("machines[1].name:")


def test_missing_and_doubled_names():
    findings = name_findings([{}, {"name": "a"}, {"name": "a"}])
    assert findings == [
        "machines[0].name: missing; every machine needs a name",
        "machines[2].name: 'a' is named twice; names must be unique",
    ]


@pytest.mark.parametrize("labels", [{"a": "b"}, {"a": ""}, {"kubenode.provision/x": "y"}, {"example.com/a-b_c.d": "1"}])
def test_good_labels(labels):
    assert machine_findings({"labels": labels}) == []


@pytest.mark.parametrize(
    "labels",
    [{"": "b"}, {"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"a": 7}, {"hetzner.cloud/x": "y"}, {"a": "-"}, {"/": ""}],
)
def test_bad_labels(labels):
    (finding,) = machine_findings({"labels": labels})
    assert finding.startswith("labels: ")


def test_user_data_is_measured_in_bytes():
    assert machine_findings({"user_data": "x" * LONGEST_USER_DATA}) == []
    (finding,) = machine_findings({"user_data": "ü" * (LONGEST_USER_DATA // 2) + "x"})
    assert finding.startswith("user_data: longer than the 32768 bytes")


def test_findings_fail_the_fleet():
    refuse_findings([])
    with pytest.raises(FleetError, match="nothing was changed, because of: one; two"):
        refuse_findings(["one", "two"])
