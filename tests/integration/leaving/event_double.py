# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The double of the Kubernetes API with Events, and with objects that these may be about."""

from __future__ import annotations

import re

from .api_double import ApiDouble, _status

MACHINES = "cluster.x-k8s.io"


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
