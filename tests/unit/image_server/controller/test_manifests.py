# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests give the controller what it asks for and nothing more, and every file of them is in use."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.kubernetes_api import (
    IMAGE_RIGHTS,
    SECRET_RIGHTS,
)

MANIFESTS = Path(__file__).parents[4] / "deploy" / "image_server"


def secrets(verbs):
    return {("", "secrets", ""): verbs}


@pytest.mark.parametrize(
    ("kind", "name", "kinds", "rights"),
    [
        ("cluster", "", ("ClusterRole", "ClusterRoleBinding"), IMAGE_RIGHTS),
        ("cluster", "secrets_", ("ClusterRole", "RoleBinding"), SECRET_RIGHTS),
        ("namespaced", "", ("Role", "RoleBinding"), {**IMAGE_RIGHTS, **secrets(("get", "list", "watch", "update"))}),
    ],
)
def test_rights_are_those_the_controller_uses(kind, name, kinds, rights):
    role, binding = (
        yaml.safe_load((MANIFESTS / kind / f"{name}{what}.yaml").read_text()) for what in ("role", "role_binding")
    )
    assert (role["kind"], binding["kind"]) == kinds
    given = {}
    for rule in role["rules"]:
        assert set(rule) == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                name, _slash, subresource = resource.partition("/")
                given[(group, name, subresource)] = tuple(rule["verbs"])
    assert given == rights
    account = yaml.safe_load((MANIFESTS / "base" / "service_account.yaml").read_text())["metadata"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **{key: account[key] for key in ("name", "namespace")}}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_no_right_to_secrets_is_for_the_whole_cluster():
    parts = [one for file in MANIFESTS.glob("*/*.yaml") for one in yaml.safe_load_all(file.read_text())]
    roles = {(one["kind"], one["metadata"]["name"]): one for one in parts if one["kind"].endswith("Role")}
    for one in parts:
        if one["kind"] == "ClusterRoleBinding":
            rules = roles[("ClusterRole", one["roleRef"]["name"])]["rules"]
            assert "secrets" not in {resource for rule in rules for resource in rule["resources"]}


def test_every_file_is_in_use():
    used = set()
    for file in MANIFESTS.glob("*/kustomization.yaml"):
        content = yaml.safe_load(file.read_text())
        names = [*content["resources"], *(one["path"] for one in content.get("patches", []))]
        used |= {(file.parent / name).resolve() for name in names}
    assert all(one.exists() for one in used)
    found = {file for file in MANIFESTS.glob("*/*.yaml") if file.name != "kustomization.yaml"}
    assert found == {one for one in used if one.is_file()}


def test_the_pod_is_confined():
    pod = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


def test_the_server_sees_the_addresses_that_it_limits():
    service = yaml.safe_load((MANIFESTS / "base" / "service.yaml").read_text())["spec"]
    assert (service["type"], service["externalTrafficPolicy"]) == ("LoadBalancer", "Local")


def test_the_pod_is_reached_and_reaches_what_it_needs_and_nothing_more():
    policy = yaml.safe_load((MANIFESTS / "base" / "network_policy.yaml").read_text())["spec"]
    pod = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text())["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
    (container,) = pod["spec"]["containers"]
    opened = {port["port"]: "from" in rule for rule in policy["ingress"] for port in rule["ports"]}
    assert opened == {"images": False, "metrics": True}
    assert set(opened) == {port["name"] for port in container["ports"]}
    reached = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}
    assert reached == {("TCP", 443), ("TCP", 6443), ("UDP", 53), ("TCP", 53)}
