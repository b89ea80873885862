# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that is named as kubeconfig and is none: one sentence of the modules, and of the image server."""

from __future__ import annotations

import types
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.cluster import Cluster
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import kubernetes_api

LISTS = "contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: x\n"
AUTHORITY = "certificate-authority-data"
NONE = {
    "no YAML": "clusters: [",
    "a list": "- clusters",
    "a text": "apiVersion",
    "a number for a list": "clusters: 5",
    "a number for a certificate": f"{LISTS}clusters: [{{name: c, cluster: {{server: https:x, {AUTHORITY}: 5}}}}]",
    "without end": "[" * 5000,
}


@pytest.fixture(params=NONE.values(), ids=NONE)
def file(request, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(request.param)
    return str(path)


def test_modules(file):
    def fail_json(msg: str, **_more: Any) -> None:
        raise SystemExit(msg)

    module = types.SimpleNamespace(params={"kubeconfig": file, "context": None}, fail_json=fail_json)
    with pytest.raises(SystemExit, match=rf"^kubeconfig: {file} is no kubeconfig \(.+\); name a file that kubectl can"):
        Cluster(module)


def test_image_server(file):
    with pytest.raises(ImageError, match=rf"KUBECONFIG \({file}\) names is no kubeconfig \(.+\); set it to a file"):
        kubernetes_api.configuration({"KUBECONFIG": file})
