# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing of a secret is in a result, a difference or what `show` returns."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build, inspection
from tests.unit.liveimage.module.building import NETWORK

AUTH = {"auths": {"quay.io": {"auth": "c2VjcmV0LXVzZXI6c2VjcmV0LXBhc3M="}}}
IGNITION = {
    "ignition": {
        "version": "3.3.0",
        "config": {
            "merge": [
                {
                    "source": "https://c.example.com/x?token=in-query",
                    "httpHeaders": [{"name": "Authorization", "value": "Bearer in-header"}],
                },
                {"source": "data:,in-data-url"},
            ]
        },
    },
    "storage": {
        "luks": [{"name": "root", "device": "/dev/sda", "keyFile": {"source": "data:,in-key-file"}}],
        "files": [{"path": "/etc/secret", "mode": 0o600, "contents": {"source": "data:,in-private-file"}}],
    },
    "passwd": {"users": [{"name": "core", "passwordHash": "$6$in-hash"}]},
}
SECRETS = [
    "c2VjcmV0LXVzZXI6", "proxy-pass", "hunter2", "in-file", "in-query", "in-header", "in-data-url", "in-key-file",
    "in-private-file", "in-hash",
]  # fmt: skip


@pytest.fixture
def hosts():
    agent = {"name": "web-1", "network": NETWORK, "files": [{"path": "/etc/x", "content": "in-file", "mode": "0600"}]}
    return [agent, {"name": "web-2", "ignition": IGNITION}]


def test_no_result_and_no_difference_has_a_secret(workshop, hosts):
    results = workshop.build(
        *hosts, pull_secret=json.dumps(AUTH), http_proxy="http://user:proxy-pass@proxy.example.com:3128",
        agent_environment={"TOKEN": "hunter2", "QUOTED": 'hunter2"hunter2\\'},
    )  # fmt: skip
    assert [one["msg"] for one in results.values() if one["failed"]] == []
    shown = inspection.show_images([image["path"] for one in results.values() for image in one["images"]])
    text = json.dumps([results, workshop.diff, shown])
    assert [secret for secret in SECRETS if secret in text] == []
    # but people see what they need
    assert [
        word for word in ("quay.io/example/agent:1", "192.0.2.10", "proxy.example.com:3128") if word not in text
    ] == []
    # and the image has it
    config = iso.inspect(str(workshop.dest / "web-1.iso")).embedded["config.ign"]
    units = json.loads(config)["systemd"]["units"]
    assert ("hunter2" in units[0]["contents"], "proxy-pass" in units[0]["contents"]) == (True, True)


@pytest.mark.parametrize(
    "line",
    [
        "psk=secret",
        "wep-key0=secret",
        " password=secret",
        "password-raw = secret",
        "private-key=secret",
        "mka-cak=secret",
        "pin=secret",
    ],
)
def test_secret_values_of_keyfiles_are_hidden(line):
    text = "[connection]\nid=eno1\n[x]\n" + line + "\n"
    assert "secret" not in inspection.masked_keyfile(text.encode())
    assert "id=eno1" in inspection.masked_keyfile(text.encode())


def test_other_values_of_keyfiles_are_shown():
    text = "[bridge]\nmulticast-snooping=true\n"
    assert inspection.masked_keyfile(text.encode()) == text


def test_the_arguments_are_shown_without_logins_of_urls():
    module = object.__new__(image_build.SecretiveModule)
    module.params = {"publish_url": "http://u:hush@x", "rootfs_url": "u:hush@x/rootfs", "dest": "/images"}
    seen = module._seen()
    assert (seen["publish_url"], seen["rootfs_url"]) == ("http://********@x", "********@x/rootfs")
    assert (seen["dest"], seen["base_iso"]) == ("/images", None)
