# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image server would not serve is refused before anything is written on it."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.filter import preprov_images
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight.conflicts import image_server_findings

FOLDER = "/var/lib/kubenode-image-server/overlays"
SERVER = {"inventory_hostname": "images-1", "image_server_hosts": {"web-1": {}, "web-9": ""}}


@pytest.mark.parametrize(
    ("host", "server", "said"),
    [
        ({}, SERVER, ["web-1: images-1 has an image of that name by its image_server_hosts"]),
        ({"kubenode_image_name": "web-9"}, SERVER, ["web-9: images-1 has an image of that name"]),
        ({"kubenode_image_state": "absent"}, SERVER, []),
        ({"kubenode_image_name": "web-2"}, SERVER, []),
        ({}, {"inventory_hostname": "images-1"}, []),
        ({"kubenode_image_dest": f"{FOLDER}/"}, {"inventory_hostname": "images-1"}, []),
        (
            {"kubenode_image_dest": "/srv/images"},
            {"inventory_hostname": "images-1"},
            [f"kubenode_image_dest is /srv/images, but images-1 serves the descriptors in {FOLDER}; leave"],
        ),
    ],
)
def test_what_a_server_would_leave_out(host, server, said):
    found = image_server_findings([{"inventory_hostname": "web-1", **host}], [server], FOLDER)
    assert len(found) == len(said)
    assert all(text.startswith(words) for text, words in zip(found, said, strict=True)), found
    assert image_server_findings([{"inventory_hostname": "web-1", **host}], [], FOLDER) == []


def test_the_table_says_where_urls_are_that_it_does_not_have():
    image = {"kind": "iso", "size": 2**20, "url": "", "path": "/x", "changed": True}
    hosts = [{"name": "web-1", "failed": False, "images": [image]}]
    lines = preprov_images.preprov_images([{"hosts": hosts, "item": "images-1"}], "table")
    assert lines[-1].startswith("their URLs are in /run/kubenode-image-server/urls.json (for root) on images-1; set")
    for item, url in (("localhost", ""), ("images-1", "http://i.example/x.iso")):
        results = [{"hosts": [{**hosts[0], "images": [{**image, "url": url}]}], "item": item}]
        assert len(preprov_images.preprov_images(results, "table")) == 2
