# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets are claimed once and gently; what is in them is read or refused."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.kubernetes_api import (
    LABEL,
    claimed_secret,
    network_data,
    secret_owners,
)
from tests.unit.image_server.controller.objects import image

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
