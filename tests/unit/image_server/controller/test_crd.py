# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CRD is baremetal-operator's own, and what the tests judge by it is judged rightly."""

from __future__ import annotations

import hashlib

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import kubernetes_api
from tests.unit.image_server.controller.objects import CRD, THEN, schema, wrong

READY = {"type": "Ready", "status": "True", "reason": "ImageSuccess", "message": "", "lastTransitionTime": THEN}
GOOD = {"imageUrl": "http://images/x.iso", "format": "iso", "conditions": [READY], "networkData": {"name": "net"}}


def test_it_is_unmodified():
    digest = hashlib.sha256(CRD.read_bytes()).hexdigest()
    assert digest == "11a7c8d5e1752507a99ddeef899b0acdc4536cfd20fff876bb8caea00eb59e57"


def test_its_names_are_those_that_are_asked_for():
    found = yaml.safe_load(CRD.read_text())["spec"]
    assert (found["group"], found["names"]["plural"]) == (kubernetes_api.GROUP, kubernetes_api.PLURAL)
    assert (f"{kubernetes_api.GROUP}/{found['versions'][0]['name']}", found["names"]["kind"]) == (
        kubernetes_api.API_VERSION,
        kubernetes_api.KIND,
    )
    assert found["versions"][0]["subresources"] == {"status": {}}


def test_a_good_status_is_taken():
    assert wrong({"status": GOOD, "spec": {"acceptFormats": ["iso", "initrd"]}}, schema()) == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"imageURL": "x"}, ".status.imageURL is unknown"),
        ({"imageUrl": None}, ".status.imageUrl: None is no string"),
        ({"format": "raw"}, "'raw' is not one of"),
        ({"conditions": [{**READY, "reason": ""}]}, "reason: 0 characters"),
        ({"conditions": [{**READY, "reason": "not a word"}]}, "does not match"),
        ({"conditions": [{**READY, "lastTransitionTime": "now"}]}, "does not match"),
        ({"conditions": [{**READY, "observedGeneration": -1}]}, "too small"),
        ({"conditions": [{**READY, "observedGeneration": True}]}, "True is no integer"),
        ({"conditions": [READY, READY]}, "twice"),
        ({"conditions": [{"type": "Ready"}]}, "message is missing"),
    ],
)
def test_a_wrong_status_is_refused(status, message):
    assert message in "\n".join(wrong({"status": {**GOOD, **status}}, schema()))
