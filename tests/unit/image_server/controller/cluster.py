# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with one image object in memory, with the API server's rules, and what serves its images."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import NotReady
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.kubernetes_api import (
    Conflict,
    NotFound,
)
from tests.unit.image_server.controller.objects import merged, schema, wrong


class Cluster:
    """Acts like `controller.api.Api`, and judges objects by the CRD; ``disturb`` is called before every request."""

    _schema = schema()

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.secrets: dict[str, dict[str, Any]] = {}
        self.disturb: Callable[[], None] = lambda: None
        self.written: list[Mapping[str, Any]] = []  # every status that was written
        self.writes = 0
        self._version = 100

    def version(self) -> str:
        self._version += 1
        return str(self._version)

    # what users do

    def create(self, spec: Mapping[str, Any]) -> None:
        metadata = {"namespace": "metal", "name": "host-1", "uid": "uid-" + self.version(), "generation": 1}
        self.object = {"metadata": {**metadata, "resourceVersion": self.version()}, "spec": dict(spec)}

    def change(self, **spec: Any) -> None:
        if self.object is None:
            return
        new = {key: value for key, value in {**self.object["spec"], **spec}.items() if value is not None}
        if new != self.object["spec"]:
            self.object["spec"] = new
            self.object["metadata"]["generation"] += 1
            self.object["metadata"]["resourceVersion"] = self.version()

    def mark(self, **metadata: Any) -> None:
        if self.object is not None:
            self._set_metadata(self.object, metadata)

    def finalize(self, name: str, on: bool) -> None:
        """Add or remove a finalizer of another controller."""
        if self.object is not None:
            rest = [one for one in self.object["metadata"].get("finalizers", []) if one != name]
            if not (on and "deletionTimestamp" in self.object["metadata"]):
                self._set_metadata(self.object, {"finalizers": [*rest, name] if on else rest})

    def delete(self) -> None:
        self.mark(deletionTimestamp="2027-01-15T08:00:00Z")

    def put_secret(self, name: str, **data: str) -> None:
        coded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        old = self.secrets.get(name, {}).get("metadata", {"namespace": "metal", "name": name})
        self.secrets[name] = {"metadata": {**old, "resourceVersion": self.version()}, "data": coded}

    # what the controller does

    def image(self, namespace: str, name: str) -> dict[str, Any]:
        self.disturb()
        return copy.deepcopy(self._current({"metadata": {"namespace": namespace, "name": name}}))

    def set_finalizers(self, image: Mapping[str, Any], finalizers: tuple[str, ...]) -> dict[str, Any]:
        self.disturb()
        current = self._fresh(image)
        assert list(finalizers) != current["metadata"].get("finalizers", []), "a write that changes nothing"
        self.writes += 1
        return copy.deepcopy(self._set_metadata(current, {"finalizers": list(finalizers)}))

    def set_status(self, image: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
        self.disturb()
        current = self._fresh(image)
        new = merged(current.get("status", {}), difference)
        assert new != current.get("status"), "a write that changes nothing"
        assert wrong({"spec": current["spec"], "status": new}, self._schema) == []
        current["status"] = copy.deepcopy(new)
        current["metadata"]["resourceVersion"] = self.version()
        self.writes += 1
        self.written.append(copy.deepcopy(current))
        return copy.deepcopy(current)

    def secret(self, _namespace: str, name: str) -> dict[str, Any]:
        self.disturb()
        if name not in self.secrets:
            raise NotFound(name)
        return copy.deepcopy(self.secrets[name])

    def replace_secret(self, secret: Mapping[str, Any]) -> dict[str, Any]:
        self.disturb()
        current = self.secrets.get(secret["metadata"]["name"])
        if current is None:
            raise NotFound("gone")
        if current["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"]:
            raise Conflict("changed")
        assert current != secret, "a write that changes nothing"
        self.writes += 1
        new = copy.deepcopy(dict(secret))
        new["metadata"]["resourceVersion"] = self.version()
        self.secrets[secret["metadata"]["name"]] = new
        return copy.deepcopy(new)

    def _current(self, image: Mapping[str, Any]) -> dict[str, Any]:
        if self.object is None or self.object["metadata"]["name"] != image["metadata"]["name"]:
            raise NotFound("no such object")
        return self.object

    def _fresh(self, image: Mapping[str, Any]) -> dict[str, Any]:
        current = self._current(image)
        if current["metadata"]["resourceVersion"] != image["metadata"]["resourceVersion"]:
            raise Conflict("changed")
        return current

    def _set_metadata(self, current: dict[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        current["metadata"].update(metadata)
        current["metadata"]["resourceVersion"] = self.version()
        if "deletionTimestamp" in current["metadata"] and not current["metadata"].get("finalizers"):
            self.object = None
        return current


class Shelf:
    """Acts like a publisher: path → what is served there."""

    def __init__(self) -> None:
        self.served: dict[str, tuple[str, str]] = {}  # key → format, network data
        self.based = True  # whether there is a base

    def publish(self, key: str, host: Any, arch: str, formats: tuple[str, ...], modified: float) -> dict[str, str]:
        assert modified >= 0
        assert host.hostname == "host-1"
        if not self.based:
            raise NotReady("there is no base")
        if "refused" in host.network:
            raise ImageError("the NMState document is refused")
        self.served[key] = (formats[0], host.network)
        return {formats[0]: f"http://images/{key}.{formats[0]}"}

    def boot_files(self, arch: str) -> dict[str, str]:
        return {kind: f"http://images/{arch or 'own'}.{kind}" for kind in ("kernel", "rootfs")}

    def discard(self, key: str) -> None:
        del self.served[key]
