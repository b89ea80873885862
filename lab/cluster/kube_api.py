# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small client of the Kubernetes API (JSON in, JSON out), and the objects of a cluster that kubeadm makes."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

from lab.errors import ClusterError

from .programs import KUBERNETES

NODE_GROUP = "system:bootstrappers:kubeadm:default-node-token"
BOOTSTRAP = "kubeadm:kubelet-bootstrap"
APPROVE = "kubeadm:node-autoapprove-bootstrap"
APPROVE_RENEWAL = "kubeadm:node-autoapprove-certificate-rotation"
_RBAC = "rbac.authorization.k8s.io"
BINDINGS_PATH = f"/apis/{_RBAC}/v1/clusterrolebindings"
_KUBEADM = "kubeadm.k8s.io/v1beta4"
SERVICES = "10.96.0.0/16"
_CSRS = "system:certificates.k8s.io:certificatesigningrequests"
CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps"
SECRETS = "/api/v1/namespaces/kube-system/secrets"

# binding → group, cluster role
BINDINGS = {
    BOOTSTRAP: (NODE_GROUP, "system:node-bootstrapper"),
    APPROVE: (NODE_GROUP, f"{_CSRS}:nodeclient"),
    APPROVE_RENEWAL: ("system:nodes", f"{_CSRS}:selfnodeclient"),
    "kubeadm:get-nodes": (NODE_GROUP, "kubeadm:get-nodes"),
}


def binding(name: str) -> dict[str, Any]:
    """One of BINDINGS as an object."""
    group, role = BINDINGS[name]
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": group}],
    }


def kubeadm_configuration(server: str) -> str:
    """The configuration of ``kubeadm init`` for the API server at https://HOST:PORT."""
    host, _colon, port = server.removeprefix("https://").rpartition(":")
    init = {
        "apiVersion": _KUBEADM,
        "kind": "InitConfiguration",
        # not stored by the phases that are run; one on loopback, as in labs without machines, would be refused
        "localAPIEndpoint": {"advertiseAddress": "192.0.2.1", "bindPort": int(port)},
        # given, so that it looks for none on this host
        "nodeRegistration": {"name": "lab", "criSocket": "unix:///run/containerd/containerd.sock"},
    }
    cluster = {
        "apiVersion": _KUBEADM,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{KUBERNETES}",
        "controlPlaneEndpoint": f"{host}:{port}",
        "networking": {"serviceSubnet": SERVICES},
    }
    return f"{json.dumps(init)}\n---\n{json.dumps(cluster)}\n"


def token_secret(token: str, expiration: str, groups: tuple[str, ...], signing: bool = True) -> dict[str, Any]:
    """The Secret of a bootstrap token ID.SECRET; ``expiration`` is a time in RFC 3339."""
    name, _dot, secret = token.partition(".")
    data = {
        "token-id": name,
        "token-secret": secret,
        "expiration": expiration,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true" if signing else "false",
        "description": "made by the lab",
    }
    if groups:
        data["auth-extra-groups"] = ",".join(groups)
    return {
        "metadata": {"name": f"bootstrap-token-{name}"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }


def access_review(group: str, resource: str, verb: str, subresource: str = "") -> dict[str, Any]:
    """The question whether a member of ``group`` may do something with certificate signing requests."""
    attributes = {
        "group": "certificates.k8s.io", "resource": resource, "verb": verb, "subresource": subresource
    }  # fmt: skip
    return {"spec": {"user": "lab:user", "groups": [group], "resourceAttributes": attributes}}


CONFLICT = 409
UNAUTHORIZED = 401


class KubeError(ClusterError):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubeUnreachable(ClusterError):
    """The API server does not answer."""


class KubeClient:
    """One API server, and the credentials: a client certificate (pair of files), a bearer token, or none."""

    def __init__(
        self, endpoint: str, ca_file: Path, certificate: tuple[Path, Path] | None = None, token: str | None = None
    ) -> None:
        """``endpoint`` is https://HOST:PORT."""
        url = urllib.parse.urlsplit(endpoint)
        self._address = url.hostname or "", url.port
        self._context = ssl.create_default_context(cafile=str(ca_file))
        if certificate:
            self._context.load_cert_chain(*certificate)
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str) -> Any:
        """GET; JSON is decoded, other text is returned as it is."""
        return self.call("GET", path)

    def create(self, path: str, body: Any) -> Any:
        """POST; an object that exists already is left as it is."""
        try:
            return self.call("POST", path, body)
        except KubeError as error:
            if error.status != CONFLICT:
                raise
            return None

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", timeout: float = 300
    ) -> Any:
        """One request; KubeError has the status, KubeUnreachable means no answer within ``timeout`` s."""
        connection = http.client.HTTPSConnection(*self._address, context=self._context, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, self._headers | ({} if text is None else {"Content-Type": kind}))
            response = connection.getresponse()
            answer = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise KubeUnreachable(
                f"{method} {path}: the API server at {self._address[0]} does not answer: {error}"
            ) from error
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        value = json.loads(answer) if is_json else answer
        if response.status >= 400:
            message = value.get("message", answer) if isinstance(value, dict) else answer
            raise KubeError(response.status, f"{method} {path}: HTTP {response.status}: {message}")
        return value
