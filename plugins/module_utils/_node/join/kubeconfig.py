# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kubeconfigs of a joining machine (pure). They are JSON, which every reader of YAML reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..._common.text import json_value
from . import paths

_SERVER = re.compile(r"^\s*(?:-\s*)?\"?server\"?:\s*[\"']?([^\s\"',]+)", re.MULTILINE)


def bootstrap(server: str, token: str) -> str:
    """The text of the bootstrap kubeconfig; it holds the token."""
    return _kubeconfig(server, {"token": token})


def final(server: str) -> str:
    """The text of a kubeconfig that uses the client certificate the kubelet keeps fresh."""
    return _kubeconfig(server, {"client-certificate": paths.CLIENT_PEM, "client-key": paths.CLIENT_PEM})


def server_of(text: str) -> str | None:
    """The server of a kubeconfig with one cluster, as the kubelet writes it; None when it names none."""
    found = _SERVER.search(text)
    return found.group(1).rstrip("/") if found else None


def token_of(text: str) -> tuple[str, str]:
    """(server, token) of a text of :func:`bootstrap`; raise ValueError for another text."""
    try:
        config = json_value(text)
        return config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError("the bootstrap kubeconfig was not written by the role join") from None


def _kubeconfig(server: str, user: Mapping[str, str]) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": {"server": server, "certificate-authority": paths.CA}}],
        "users": [{"name": "kubelet", "user": user}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "kubelet", "namespace": "default"}}],
        "current-context": "default",
    }
    return json.dumps(config, indent=2) + "\n"
