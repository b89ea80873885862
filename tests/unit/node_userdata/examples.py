# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs that tests share."""

from __future__ import annotations

import base64
import json
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from tests.unit.node.samples import CA

DIGEST = "0123456789abcdef" * 4
SMALL: dict[str, Any] = {"provision_source": f"http://10.0.0.1/provision#sha256={DIGEST}", "phase": "base"}
FULL: dict[str, Any] = {
    "provision_source": f"https://files.example.com/a/provision?x=1&y=%27#sha256={DIGEST}",
    "hostname": "node-1",
    "ssh_authorized_keys": ["ssh-ed25519 AAAAC3Nz operator@example", 'ssh-rsa AAAAB3Nz it\'s "me" ü'],
    "kubelet_version": "v1.36.4",
    "api_server": "https://api.example.com:6443",
    "ca_cert": CA,
    "token": "abcdef.0123456789abcdef",
    "cloud_provider": "external",
    "cloud_config": "[global]\nkey = 'value' \"quoted\" $HOME `id` %d \\n\n",
    "vars": {
        "base_http_proxy": "http://proxy:3128",
        "base_no_proxy": "10.0.0.0/8,.local",
        "join_labels": {"example.com/a": "x-y"},
        "join_taints": ["a=b:NoSchedule"],
    },
    "source_ca": CA,
    "python_source": f"https://files.example.com/python.tar.gz#sha256={DIGEST}",
    "attempts": 5,
    "pause": 2,
}


def rendered(inputs: object, *more: object, **named: object) -> str:
    """The user data of inputs, by the rules of this collection."""
    return user_data.user_data(inputs, *more, **named)


def written(text: str, name: str) -> dict[str, tuple[int, str]]:
    """What the user data of a format writes: path → (mode, content)."""
    if name == "cloud-init":
        entries = yaml.safe_load(text)["write_files"]
        assert {entry["encoding"] for entry in entries} == {"b64"}
        return {
            entry["path"]: (int(entry["permissions"], 8), base64.b64decode(entry["content"]).decode())
            for entry in entries
        }
    found = {}
    for entry in json.loads(text)["storage"]["files"]:
        prefix, _comma, data = entry["contents"]["source"].partition(",")
        assert prefix == "data:;base64"
        found[entry["path"]] = (entry["mode"], base64.b64decode(data).decode())
    return found
