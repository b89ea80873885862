# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Node object: registered once, its status kept up, its lease renewed."""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from lab.kubelet.app import host, log, schema
from lab.kubelet.app.client import MERGE_PATCH, ApiError, Client, Unreachable
from lab.kubelet.app.version import VERSION

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
PROVIDED_ADDRESS = "alpha.kubernetes.io/provided-node-ip"
#: how often a network configuration is looked for, seconds
_GLANCE = 0.25
_NO_NETWORK = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized"
)


def stamp() -> str:
    """Now, as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Node(threading.Thread):
    """Registers and then keeps status and lease fresh until ``stopped``."""

    def __init__(
        self,
        name: str,
        config: dict[str, Any],
        flags: dict[str, str],
        labels: dict[str, str],
        client: Callable[[], Client],
        stopped: threading.Event,
    ) -> None:
        super().__init__(name="kubelet_node_status", daemon=True)
        self._name, self._config, self._flags, self._labels = name, config, flags, labels
        self._client, self._stopped = client, stopped
        self._external = flags.get("cloud-provider") == "external"
        self._since: dict[str, tuple[str, str]] = {}  # condition → status, since when
        self._uid = ""

    def run(self) -> None:
        if self._config["registerNode"] and not self._register():
            return
        period = schema.seconds(self._config["nodeStatusUpdateFrequency"], 10.0)
        lease = max(1.0, self._config["nodeLeaseDurationSeconds"] / 4)
        network, due, renewal = None, 0.0, 0.0
        while not self._stopped.is_set():
            now, ready = time.monotonic(), host.cni_ready()
            if now >= due or ready != network:
                network, due = ready, now + period
                self._update()
            if now >= renewal:
                renewal = now + lease
                self._renew()
            self._stopped.wait(_GLANCE)

    def _register(self) -> bool:
        """True once the node is registered; tries again as long as the server does not answer."""
        log.info("kubelet_node_status.go:75", "Attempting to register node", node=self._name)
        while not self._stopped.is_set():
            try:
                made = self._client().call("POST", NODES, self.initial())
                self._uid = made["metadata"]["uid"]
                log.info("kubelet_node_status.go:78", "Successfully registered node", node=self._name)
                return True
            except ApiError as problem:
                if problem.code == 409:
                    return self._registered_before()
                self._failed(problem)
            except Unreachable as problem:
                self._failed(problem)
            self._stopped.wait(1.0)
        return False

    def _registered_before(self) -> bool:
        log.info("kubelet_node_status.go:124", "Node was previously registered", node=self._name)
        try:
            found = self._client().call(
                "PATCH", "%s/%s" % (NODES, self._name), {"metadata": {"labels": self._default_labels()}}, MERGE_PATCH
            )
            self._uid = found["metadata"]["uid"]
        except (ApiError, Unreachable) as problem:
            self._failed(problem)
        return True

    def _failed(self, problem: Exception) -> None:
        log.error("kubelet_node_status.go:107", "Unable to register node with API server", problem, node=self._name)

    def initial(self) -> dict[str, Any]:
        """The object that is registered; labels, taints and provider ID act only here."""
        taints = [dict(taint) for taint in self._config.get("registerWithTaints") or []]
        annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        if self._external:
            taints.append(UNINITIALIZED)
            if self._flags.get("node-ip"):
                annotations[PROVIDED_ADDRESS] = self._flags["node-ip"]
        spec: dict[str, Any] = {"taints": taints} if taints else {}
        if self._config.get("providerID"):
            spec["providerID"] = self._config["providerID"]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self._name,
                "labels": {**self._labels, **self._default_labels()},
                "annotations": annotations,
            },
            "spec": spec,
            "status": self.status(),
        }

    def _default_labels(self) -> dict[str, str]:
        architecture = host.architecture()
        return {
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": architecture,
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": architecture,
        }

    def status(self) -> dict[str, Any]:
        """What the machine is and how it does."""
        capacity = {
            "cpu": str(os.cpu_count() or 1),
            "memory": "%dKi" % (host.memory_bytes() // 1024),
            "ephemeral-storage": "%dKi" % (host.disk_bytes("/var") // 1024),
            "pods": str(self._config["maxPods"]),
        }
        reserved = sum(
            schema.bytes_of((self._config.get(field) or {}).get("memory"))
            for field in ("kubeReserved", "systemReserved")
        )
        allocatable = dict(capacity, memory="%dKi" % ((host.memory_bytes() - reserved) // 1024))
        return {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": self._conditions(),
            "addresses": self._addresses(),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._config.get("port", 10250)}},
            "nodeInfo": host.system(VERSION),
        }

    def _addresses(self) -> list[dict[str, str]]:
        given = self._flags.get("node-ip", "")
        if self._external and not given:
            return []  # the cloud's controller knows them
        server = self._client().access.server.split("//")[-1].rsplit(":", 1)[0].strip("[]")
        found = host.addresses(given, server)
        return [{"type": "InternalIP", "address": str(ipaddress.ip_address(each))} for each in found] + [
            {"type": "Hostname", "address": self._name}
        ]

    def _conditions(self) -> list[dict[str, str]]:
        rows = [
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ]
        if host.cni_ready():
            rows.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
        else:
            rows.append(("Ready", "False", "KubeletNotReady", _NO_NETWORK))
        now, found = stamp(), []
        for kind, status, reason, message in rows:
            if self._since.get(kind, ("", ""))[0] != status:
                self._since[kind] = (status, now)
            found.append(
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": self._since[kind][1],
                }
            )
        return found

    def _update(self) -> None:
        try:
            self._client().call("PATCH", "%s/%s/status" % (NODES, self._name), {"status": self.status()}, MERGE_PATCH)
        except (ApiError, Unreachable) as problem:  # a node that was deleted stays away until a restart
            log.error("kubelet_node_status.go:544", "Error updating node status, will retry", problem)

    def _renew(self) -> None:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": self._name,
                "leaseDurationSeconds": self._config["nodeLeaseDurationSeconds"],
                "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000000Z",
            },
        }
        if self._uid:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}
            lease["metadata"]["ownerReferences"] = [owner]  # type: ignore[index]
        try:
            try:
                self._client().call("PATCH", "%s/%s" % (LEASES, self._name), lease, "application/merge-patch+json")
            except ApiError as problem:
                if problem.code != 404:
                    raise
                self._client().call("POST", LEASES, lease)
        except (ApiError, Unreachable) as problem:
            log.error("controller.go:145", "Failed to ensure lease exists, will retry", problem)
