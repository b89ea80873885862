# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a replica serves: one image an object, by a key that differs for each network, over the bases that are there."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.reconcile import (
    BuildRequest,
    Built,
    Images,
    NotYet,
    Refused,
)
from tests.unit.image_server.controller.cluster import Shelf
from tests.unit.image_server.controller.objects import image, secret


def test_another_network_is_another_url_and_the_old_one_ends():
    shelf = Shelf()
    images = Images(shelf, lambda arch: "")
    one = images.build(image(), BuildRequest("iso", "x86_64", secret(text="a")))
    assert images.build(image(), BuildRequest("iso", "x86_64", secret(version="8", text="a"))) == one
    two = images.build(image(), BuildRequest("iso", "x86_64", secret(text="b")))
    assert isinstance(one, Built)
    assert isinstance(two, Built)
    assert one.image_url != two.image_url
    assert [data for _kind, data in shelf.served.values()] == ["b"]
    images.forget("metal", "host-1")
    images.forget("metal", "host-1")
    assert not shelf.served
    assert images.held() == []


def test_keys_hold_nothing_of_the_network():
    shelf = Shelf()
    Images(shelf, lambda arch: "").build(image(), BuildRequest("iso", "", secret(text="192.0.2.1")))
    assert "192.0.2.1" not in str(list(shelf.served))


def test_images_over_other_bases_are_outdated_until_they_are_built_again():
    states = {"x86_64": 1, "aarch64": 1}
    shelf = Shelf()
    images = Images(shelf, lambda arch: states[arch])
    wish = BuildRequest("iso", "x86_64", None)
    images.build(image(), wish)
    assert images.outdated() == []
    states["x86_64"] = 2
    assert images.outdated() == [("metal", "host-1")]
    shelf.based = False
    assert images.build(image(), wish) == NotYet()
    assert images.outdated() == [("metal", "host-1")]
    shelf.based = True
    images.build(image(), wish)
    assert images.outdated() == []
    states["x86_64"] = 3
    assert isinstance(images.build(image(), BuildRequest("iso", "x86_64", secret(text="refused"))), Refused)
    assert images.outdated() == []
