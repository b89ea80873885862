# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfig files: read one, write the one that points to the rotating certificate."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.kubelet.app import yaml
from lab.kubelet.app.files import write


class KubeconfigError(ValueError):
    """The file is missing, no kubeconfig, or names files that cannot be read."""


@dataclass(frozen=True)
class Access:
    """How to speak to an API server."""

    server: str
    ca: str = ""  # PEM
    verify: bool = True
    token: str = field(default="", repr=False)
    certificate: str = ""  # file with the client certificate
    key: str = ""  # file with its key
    cluster: Any = None  # the cluster entry as it was read


def read(path: Path) -> Access:
    """Access by the current context; raises :class:`KubeconfigError`."""
    try:
        content = yaml.loads(path.read_text(encoding="utf-8"))
        context = _named(content, "contexts", content.get("current-context"))["context"]
        cluster = _named(content, "clusters", context["cluster"])["cluster"]
        user = _named(content, "users", context["user"])["user"] or {}
        ca = _content(cluster, "certificate-authority", path)
        token = user.get("token") or ""
        if user.get("tokenFile"):
            token = Path(user["tokenFile"]).read_text(encoding="utf-8").strip()
        return Access(
            server=cluster["server"].rstrip("/"),
            ca=ca,
            verify=not cluster.get("insecure-skip-tls-verify"),
            token=token,
            certificate=_file(user, "client-certificate", path),
            key=_file(user, "client-key", path),
            cluster=cluster,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise KubeconfigError("%s: %s: %s" % (path, type(problem).__name__, problem)) from None


def _named(content: Any, kind: str, name: Any) -> Any:
    for entry in content.get(kind) or []:
        if entry.get("name") == name:
            return entry
    raise KeyError("%s %s" % (kind, name))


def _content(entry: dict, name: str, path: Path) -> str:
    if entry.get(name + "-data"):
        return base64.b64decode(entry[name + "-data"]).decode()
    return (path.parent / entry[name]).read_text(encoding="utf-8") if entry.get(name) else ""


def _file(user: dict, name: str, path: Path) -> str:
    """The named file; data inside the kubeconfig is put into one beside it, since TLS wants files."""
    if user.get(name + "-data"):
        beside = path.with_name(".%s.%s" % (path.name, name))
        write(beside, base64.b64decode(user[name + "-data"]), 0o600)
        return str(beside)
    return str(path.parent / user[name]) if user.get(name) else ""


def write_rotating(path: Path, access: Access, current: Path) -> None:
    """The kubelet's own kubeconfig: same cluster as the bootstrap one, certificate and key in ``current``."""
    cluster = {key: value for key, value in (access.cluster or {}).items() if value is not None}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "contexts": [
            {
                "name": "default-context",
                "context": {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"},
            }
        ],
        "current-context": "default-context",
        "preferences": {},
        "users": [{"name": "default-auth", "user": {"client-certificate": str(current), "client-key": str(current)}}],
    }
    write(path, (json.dumps(document, indent=2) + "\n").encode(), 0o600)
