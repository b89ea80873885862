# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A double of the Kubernetes API: Nodes, pods, evictions and PodDisruptionBudgets, in the API's wire format over HTTP.

The real API server of the lab is asked the same questions in test_drain_cluster.py; this one starts in no time.
"""

import json
import re
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from tests.web_servers import Handler, Server

MACHINES = "cluster.x-k8s.io"


def node(name: str, machine_id: str = "", **more: Any) -> dict[str, Any]:
    """A Node that is Ready."""
    status = {
        "nodeInfo": {"machineID": machine_id, "bootID": more.pop("boot_id", "")} | _INFO,
        "conditions": [{"type": "Ready", "status": more.pop("ready", "True"), "message": "as the double says"}],
        "addresses": [{"type": "InternalIP", "address": address} for address in more.pop("addresses", ())],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "managedFields": []},
        "spec": {key: value for key, value in more.items() if value},
        "status": status,
    }


_INFO = {
    "systemUUID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "",
    "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
}  # fmt: skip


def pod(name: str, on: str, owner: str | None = "ReplicaSet", **more: Any) -> dict[str, Any]:
    """A pod that runs on a Node. ``more``: annotations, volumes, phase, app."""
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": f"{name}-owner", "uid": "o", "controller": True}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "labels": {"app": more.get("app", name)},
            "annotations": more.get("annotations", {}),
            "ownerReferences": owners if owner else [],
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "main", "image": "example.com/image"}],
            "volumes": more.get("volumes", []),
        },
        "status": {"phase": more.get("phase", "Running")},
    }


class ApiDouble:
    """One API server on loopback; ``nodes`` and ``pods`` by name, ``budgets``: app → evictions that are allowed."""

    def __init__(self, folder: Path, eviction: str = "policy/v1") -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.budgets: dict[str, int] = {}
        #: What every write and eviction was: (method, path, body).
        self.writes: list[tuple[str, str, Any]] = []
        #: Pods that keep their finalizer: an eviction only marks them.
        self.stuck: set[str] = set()
        #: How many requests are answered with 503 before one is answered well.
        self.faults = 0
        self.eviction = eviction
        #: Called with every request, before it is answered: what happens in the cluster meanwhile.
        self.meanwhile = lambda _method, _path: None
        self._lock = threading.RLock()
        double = self

        class Request(Handler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                sent = self.body()
                body = json.loads(sent) if sent else None
                with double._lock:
                    status, answer = double._answer(self.command, self.path, body)
                self.reply(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

            do_GET = do_POST = do_PATCH = do_DELETE = _serve

        server = Server(Request)
        self.close = server.close
        self.kubeconfig = folder / "double.kubeconfig"
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                    "users": [{"name": "u", "user": {"token": "secret-of-the-kubeconfig"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

    def add(self, *objects: dict[str, Any]) -> None:
        """Nodes and pods."""
        for one in objects:
            (self.nodes if one["kind"] == "Node" else self.pods)[one["metadata"]["name"]] = one

    def cordon(self, name: str, manager: str, on: bool = True) -> None:
        """As a person does with a client of that name."""
        with self._lock:
            self._patch(name, {"spec": {"unschedulable": on or None}}, manager)

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        self.meanwhile(method, path)
        if self.faults:
            self.faults -= 1
            return _status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query))
        words = url.path.strip("/").split("/")
        if url.path.rstrip("/") == "/api/v1":
            group, _slash, version = self.eviction.partition("/")
            found = {"name": "pods/eviction", "kind": "Eviction", "group": group, "version": version}
            rest = {"singularName": "", "namespaced": True, "verbs": ["create"]}
            return 200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": [found | rest]}
        if words[:3] == ["api", "v1", "nodes"] and len(words) == 4:
            return self._node(method, words[3], body, query)
        if words == ["api", "v1", "pods"]:
            wanted = query["fieldSelector"].removeprefix("spec.nodeName=")
            found = [one for one in self.pods.values() if one["spec"]["nodeName"] == wanted]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found}
        if words[-1] == "eviction" and method == "POST":
            self.writes.append((method, url.path, body))
            return self._evict(words[5], body)
        return _status(404, "NotFound", "the server could not find the requested resource")

    def _node(self, method: str, name: str, body: Any, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if name not in self.nodes:
            return _status(404, "NotFound", f'nodes "{name}" not found')
        if method == "GET":
            return 200, self.nodes[name]
        self.writes.append((method, name, body))
        uid = ((body or {}).get("preconditions") or (body or {}).get("metadata") or {}).get("uid")
        if uid and uid != self.nodes[name]["metadata"]["uid"]:
            return _status(409, "Conflict", "Precondition failed: UID in precondition")
        if method == "DELETE":
            del self.nodes[name]
            return _status(200, "", "", "Success")
        return 200, self._patch(name, body, query.get("fieldManager", "unknown"))

    def _patch(self, name: str, body: Any, manager: str) -> dict[str, Any]:
        found = self.nodes[name]
        wanted = body["spec"]["unschedulable"]
        held = [one for one in found["metadata"]["managedFields"] if "f:unschedulable" not in one["fieldsV1"]["f:spec"]]
        if wanted:
            found["spec"]["unschedulable"] = True
            fields = {"f:spec": {"f:unschedulable": {}}}
            held.append({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": fields})
        else:
            found["spec"].pop("unschedulable", None)
        found["metadata"]["managedFields"] = held
        notes = {**found["metadata"].get("annotations", {}), **(body.get("metadata") or {}).get("annotations", {})}
        found["metadata"]["annotations"] = {key: value for key, value in notes.items() if value is not None}
        return found

    def _evict(self, name: str, body: Any) -> tuple[int, dict[str, Any]]:
        if body["apiVersion"] != self.eviction or body["kind"] != "Eviction":
            return _status(400, "BadRequest", f"no kind {body['kind']} in version {body['apiVersion']}")
        if name not in self.pods:
            return _status(404, "NotFound", f'pods "{name}" not found')
        found = self.pods[name]
        uid = ((body.get("deleteOptions") or {}).get("preconditions") or {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        app = found["metadata"]["labels"]["app"]
        if app in self.budgets and found["status"]["phase"] == "Running":
            if self.budgets[app] < 1:
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                cause = f"The disruption budget {app} needs 1 healthy pods and has 1 currently"
                details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
                status, answer = _status(429, "TooManyRequests", text)
                return status, {**answer, "details": details}
            self.budgets[app] -= 1
        if name in self.stuck:
            found["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
        else:
            del self.pods[name]
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _status(code: int, reason: str, message: str, status: str = "Failure") -> tuple[int, dict[str, Any]]:
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, "code": code}
    return code, {**answer, "reason": reason, "message": message}


class EventDouble(ApiDouble):
    """Events by (namespace, name) beside the Nodes; ``objects``: uids of ConfigMaps and Machines by path."""

    def __init__(self, folder):
        super().__init__(folder)
        self.events, self.objects, self.forbidden = {}, {}, False

    def _answer(self, method, path, body):
        path, words = path.partition("?")[0], path.partition("?")[0].strip("/").split("/")
        if path == "/apis/":
            version = {"groupVersion": f"{MACHINES}/v1beta2", "version": "v1beta2"}
            groups = [{"name": MACHINES, "versions": [version], "preferredVersion": version}]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups if self.objects else []}
        if words[:3] == ["api", "v1", "namespaces"] and words[4:5] == ["events"]:
            self.faults, faults = max(0, self.faults - 1), self.faults
            if faults:
                return _status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            return self._event(method, words[3], words[5:], body)
        if words[-2] in ("configmaps", "machines"):
            uid = self.objects.get("/".join(words[-4:]))
            found = {"kind": "X", "apiVersion": "v1", "metadata": {"name": words[-1], "uid": uid}}
            return (200, found) if uid else _status(404, "NotFound", f'{words[-2]} "{words[-1]}" not found')
        return super()._answer(method, path, body)

    def _event(self, method, namespace, rest, body):
        if self.forbidden:
            return _status(403, "Forbidden", "events is forbidden: no luck")
        if method == "POST":
            name, about = body["metadata"]["name"], body["involvedObject"]
            assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
            if about.get("namespace", "default") != namespace:
                return _status(422, "Invalid", "involvedObject.namespace: does not match event.namespace")
            if (namespace, name) in self.events:
                return _status(409, "AlreadyExists", f'events "{name}" already exists')
            self.events[namespace, name] = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
            return 201, self.events[namespace, name]
        found = self.events.get((namespace, rest[0]))
        if found is None:
            return _status(404, "NotFound", f'events "{rest[0]}" not found')
        if method == "PATCH":
            version = found["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != version:
                return _status(409, "Conflict", "the object has been modified")
            found.update({key: value for key, value in body.items() if key != "metadata"})
            found["metadata"]["resourceVersion"] = str(int(version) + 1)
        return 200, found
