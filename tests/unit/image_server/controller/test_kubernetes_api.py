# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the cluster: how Secrets are claimed, what of a status is written, and the CRD they are judged by."""

from __future__ import annotations

import base64
import hashlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import text
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import kubernetes_api
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.controller import namespaces
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.kubernetes_api import (
    LABEL,
    claimed_secret,
    network_data,
    secret_owners,
)
from tests.unit.image_server.controller.objects import CRD, NOW, THEN, image, merged, schema, wrong

MINE = {"apiVersion": "metal3.io/v1alpha1", "kind": "PreprovisioningImage", "name": "host-1", "uid": "0b5c"}
OTHER = {**MINE, "name": "host-2", "uid": "77", "controller": False}
FOREIGN = {"apiVersion": "v1", "kind": "ConfigMap", "name": "host-1", "uid": "5", "controller": True}


def secret(**metadata):
    return {"metadata": {"name": "net", **metadata}, "data": {"nmstate": "eA=="}, "immutable": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, [MINE], id="none"),
        pytest.param({"ownerReferences": [FOREIGN, OTHER]}, [FOREIGN, OTHER, MINE], id="others'"),
        pytest.param({"ownerReferences": [{**MINE, "controller": True}, OTHER]}, [MINE, OTHER], id="as-controller"),
        pytest.param({"ownerReferences": [{**MINE, "uid": "of-a-former-one"}]}, [MINE], id="former"),
    ],
)
def test_a_claim_adds_a_label_and_an_owner(before, after):
    given = secret(**before)
    kept = repr(given)
    new = claimed_secret(given, image())
    assert repr(given) == kept
    assert new == secret(ownerReferences=after, labels={LABEL: "baremetal"})


def test_what_is_claimed_stays_as_it_is():
    assert claimed_secret(secret(ownerReferences=[OTHER, MINE], labels={LABEL: "baremetal"}), image()) is None
    assert (
        claimed_secret(secret(ownerReferences=[{**MINE, "controller": False}], labels={LABEL: "else"}), image()) is None
    )


def test_a_label_of_another_value_stays():
    new = claimed_secret(secret(labels={LABEL: "else", "a": "b"}), image())
    assert new["metadata"]["labels"] == {LABEL: "else", "a": "b"}


def test_owners_are_images_of_ours():
    assert secret_owners(secret(ownerReferences=[FOREIGN, MINE, OTHER])) == ["host-1", "host-2"]
    assert secret_owners(secret()) == secret_owners({}) == []


def test_network_data_is_text():
    assert network_data({}) == network_data({"nmstate": ""}) == ""
    assert network_data({"nmstate": base64.b64encode("ä: 1".encode()).decode(), "more": "eA=="}) == "ä: 1"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"network": "eA=="}, "missing required 'nmstate' key"),
        ({"nmstate": base64.b64encode(b"\xff\xfe").decode()}, "no text in UTF-8"),
        ({"nmstate": "%%%"}, "no text in UTF-8"),
    ],
    ids=["other-key", "binary", "damaged"],
)
def test_other_content_is_refused(data, message):
    with pytest.raises(ImageError, match=message):
        network_data(data)


# --- what differs between two statuses, and only that, goes to the API server


VALUES = st.recursive(
    st.one_of(st.text(max_size=3), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_difference_makes_one_of_the_other(old, new):
    patch = kubernetes_api.difference(old, new)
    assert merged(old, patch) == new
    assert bool(patch) == (old != new)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (None, "", True),
        ({}, {"networkData": {}, "conditions": [], "url": ""}, True),
        ({"networkData": {"name": ""}}, {}, True),
        ({"a": "x"}, {"a": "y"}, False),
        ({"a": 0}, {}, False),
        ([{"a": ""}], [{}], True),
        ([{"a": "x"}], [], False),
    ],
)
def test_what_is_empty_counts_as_absent(one, other, equal):
    assert kubernetes_api.same_values(one, other) is equal
    assert kubernetes_api.same_values(one=other, other=one) is equal


def test_times_are_those_of_kubernetes():
    assert text.to_whole_seconds(NOW) == THEN
    assert kubernetes_api.unix_time(THEN) == kubernetes_api.unix_time("2027-01-15T08:00:00.123456Z") == NOW
    assert kubernetes_api.unix_time("yesterday", 5.0) == kubernetes_api.unix_time(None, 5.0) == 5.0


def test_the_age_of_a_condition():
    status = {"conditions": [{"type": "Error", "lastTransitionTime": THEN}]}
    assert kubernetes_api.condition_age(status, "Error", NOW + 7) == 7
    assert kubernetes_api.condition_age(status, "Error", NOW - 7) == 0  # the writer's clock is ahead
    assert kubernetes_api.condition_age(status, "Ready", NOW) == 0


def test_namespaces_of_a_list():
    assert namespaces("") == namespaces(" , ") == ()
    assert namespaces("a, b,,a") == ("a", "b")


# --- the CRD is baremetal-operator's own, and what the tests judge by it is judged rightly


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
