# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Secret that the service account may not use: the object says so, and the pass is a failed one."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.kubernetes_api import Forbidden
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.reconcile import (
    FINALIZER,
    Images,
    Reconciler,
)
from tests.unit.image_server.controller.cluster import Cluster, Shelf
from tests.unit.image_server.controller.objects import NOW, conditions

REASON = 'GET /a: HTTP 403: no; the service account lacks verb "get" on secrets'
SAID = {
    "Ready": ("False", "MissingNetworkData", ""),
    "Error": ("True", "MissingNetworkData", "NetworkData secret cannot be used: " + REASON),
}


@pytest.fixture
def cluster():
    found = Cluster()
    found.create({"acceptFormats": ["iso"], "networkDataName": "one", "architecture": "x86_64"})
    found.put_secret("one", nmstate="interfaces: []")
    return found


def looking(cluster):
    shelf = Shelf()
    reconciler = Reconciler(cluster, Images(shelf, lambda arch: True), lambda arch: True, lambda: NOW)
    return lambda: reconciler.reconcile("metal", "host-1", lambda _image: None)


def deny(*_arguments):
    raise Forbidden(REASON)


@pytest.mark.parametrize("request_", ["secret", "replace_secret"])
def test_the_object_says_which_right_is_missing_until_it_is_there(cluster, monkeypatch, request_):
    look = looking(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, request_, deny)
        with pytest.raises(Forbidden, match="lacks verb"):
            look()
        assert conditions(cluster.object["status"]) == SAID
        writes = cluster.writes
        with pytest.raises(Forbidden):
            look()
        assert cluster.writes == writes  # nothing new is written
    look()
    assert conditions(cluster.object["status"])["Ready"] == ("True", "ImageSuccess", "Generated image")
    assert conditions(cluster.object["status"])["Error"] == ("False", "ImageSuccess", "")


def test_nothing_is_written_to_an_object_that_is_being_deleted(cluster, monkeypatch):
    looking(cluster)()
    cluster.finalize("other.example/finalizer", True)
    cluster.delete()
    before = cluster.object["status"]
    monkeypatch.setattr(cluster, "secret", deny)
    with pytest.raises(Forbidden):
        looking(cluster)()
    assert cluster.object["status"] == before
    assert FINALIZER in cluster.object["metadata"]["finalizers"]
