# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against an image of a machine."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image.builds import faults

KUBELET = "/usr/local/bin/kubelet"
FIT = {
    "base": {"prebaked": True, "kubernetes": {"version": "1.36.4"}, "runtime": {"name": "containerd"}},
    "units": {
        "kubelet": {"enabled": "enabled", "active": "inactive"},
        "containerd": {"enabled": "enabled", "active": "active"},
    },
    "files": {"/etc/kubernetes/kubelet.conf": {"exists": False}},
    "swaps": [],
    "artifacts": {"kubelet": {"files": {KUBELET: {"same": True}}}},
}


def test_a_fit_machine():
    assert faults(FIT, "1.36.4") == []


def units(name, **more):
    return {"units": {**FIT["units"], name: {**FIT["units"][name], **more}}}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"base": {**FIT["base"], "prebaked": False}}, "does not say that base was prebaked"),
        ({"base": {**FIT["base"], "kubernetes": {"version": "1.36.3"}}}, "Kubernetes is 1.36.3, not 1.36.4"),
        (units("kubelet", enabled="disabled"), "the kubelet would not start at boot"),
        (units("kubelet", active="active"), "the kubelet runs"),
        (units("containerd", active="failed"), "containerd does not run"),
        ({"files": {"/etc/kubernetes/kubelet.conf": {"exists": True}}}, "kubelet.conf is there: it has joined"),
        ({"swaps": [{"name": "/swap.img"}]}, "swap is on: /swap.img"),
        ({"artifacts": {"kubelet": {"files": {KUBELET: {"same": False}}}}}, f"{KUBELET} of kubelet is not as it was"),
        ({"artifacts": {"kubelet": {"files": {KUBELET: None}}}}, f"{KUBELET} of kubelet is not as it was"),
    ],
)
def test_each_fault_is_found_alone(change, fault):
    (found,) = faults({**FIT, **change}, "1.36.4")
    assert fault in found


def test_a_machine_that_reported_nothing_is_not_fit():
    assert len(faults({}, "1.36.4")) == 4
    assert faults({**FIT, "swaps": [{"name": "/swap.img"}]}, "1.36.4", "keep") == []
