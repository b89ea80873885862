# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kubeadm would put into a new cluster, as far as joining nodes need it (pure)."""

from __future__ import annotations

import json
from typing import Any

from .pki import kubeconfig

NODE_GROUP = "system:bootstrappers:kubeadm:default-node-token"
BOOTSTRAP = "kubeadm:kubelet-bootstrap"
APPROVE = "kubeadm:node-autoapprove-bootstrap"
APPROVE_RENEWAL = "kubeadm:node-autoapprove-certificate-rotation"
_RBAC = "rbac.authorization.k8s.io"
BINDINGS_PATH = f"/apis/{_RBAC}/v1/clusterrolebindings"
_ROLES = f"/apis/{_RBAC}/v1/clusterroles"
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


def initial(server: str, ca_pem: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Pairs of the path to post to and the object."""
    signer = "kubeadm:bootstrap-signer-clusterinfo"
    public = f"/apis/{_RBAC}/v1/namespaces/kube-public"
    get_nodes = {
        "metadata": {"name": "kubeadm:get-nodes"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    }
    info = {
        "metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": json.dumps(kubeconfig(server, ca_pem, None), indent=1) + "\n"},
    }
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}
    anybody = {
        "metadata": {"name": signer},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": signer},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "system:anonymous"}],
    }
    return [
        (CLUSTER_INFO, info),
        (f"{public}/roles", {"metadata": {"name": signer}, "rules": [rule]}),
        (f"{public}/rolebindings", anybody),
        (_ROLES, get_nodes),
        *((BINDINGS_PATH, binding(name)) for name in BINDINGS),
    ]


def token_secret(token: str, expiration: str, groups: tuple[str, ...]) -> dict[str, Any]:
    """The Secret of a bootstrap token ID.SECRET; ``expiration`` is a time in RFC 3339."""
    name, _dot, secret = token.partition(".")
    data = {
        "token-id": name,
        "token-secret": secret,
        "expiration": expiration,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
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
    return {"spec": {"user": "lab:somebody", "groups": [group], "resourceAttributes": attributes}}
