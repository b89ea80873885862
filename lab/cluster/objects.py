# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a cluster that kubeadm makes, and the configuration with which it makes them (pure)."""

from __future__ import annotations

import json
from typing import Any

from .kubernetes import KUBERNETES

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
