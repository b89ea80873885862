# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A namespace of a real cluster as its users see it, and the image server as they would run it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio, iso
from lab.cluster.kube_api import KubeError
from lab.cluster.running_cluster import RunningCluster
from lab.running import RunningLab
from tests.integration.liveimage.program import PATIENCE, Program
from tests.unit.image_server.controller.objects import CRD
from tests.waiting import until

MANIFESTS = Path(__file__).parents[3] / "deploy" / "image_server"
FINALIZER = "preprovisioningimage.metal3.io"
MERGE = "application/merge-patch+json"
API = "/apis/metal3.io/v1alpha1"
ACCOUNT = "image-server"
HOME = "kubenode-images"  # the namespace of the manifests
PUBLISHED = "http://images.test:8084"


@contextlib.contextmanager
def new_cluster() -> Iterator[RunningCluster]:
    """An API server that knows PreprovisioningImages by baremetal-operator's CRD, and a namespace for hosts."""
    with RunningLab(kind="dry") as lab:
        cluster = lab.cluster()
        cluster.kubectl("apply", "-f", str(CRD))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=180s", "-f", str(CRD))
        cluster.kubectl("create", "namespace", "metal3")  # where the manifests' example of a binding is
        yield cluster


def network(address: str) -> str:
    """An NMState document whose profile has this address in it."""
    return json.dumps(
        {
            "interfaces": [
                {
                    "name": "eth0",
                    "type": "ethernet",
                    "state": "up",
                    "ipv4": {
                        "enabled": True,
                        "dhcp": False,
                        "address": [{"ip": address, "prefix-length": 24}],
                    },
                }
            ]
        }
    )


class World:
    """One namespace; objects are named, everything else is what the API server says."""

    def __init__(self, cluster: RunningCluster, namespace: str) -> None:
        self.cluster, self.api, self.namespace = cluster, cluster.api, namespace
        self.images = f"{API}/namespaces/{namespace}/preprovisioningimages"
        self.secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.bind(True)

    def bind(self, wanted: bool) -> None:
        """Have the binding of the manifests to the Secrets here, or not."""
        binding = yaml.safe_load((MANIFESTS / "cluster" / "secrets_role_binding.yaml").read_text())
        binding["metadata"]["namespace"] = self.namespace
        place = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/rolebindings"
        if wanted:
            self.api.create(place, binding)
        else:
            self.api.call("DELETE", f"{place}/{binding['metadata']['name']}")

    def create(self, name: str, **more: Any) -> None:
        """An object as baremetal-operator makes it; ``labels``, ``finalizers``, and fields of the spec."""
        metadata = {"name": name, **{key: more.pop(key) for key in ("labels", "finalizers") if key in more}}
        spec = {"architecture": "x86_64", "acceptFormats": ["iso"], **more}
        body = {"apiVersion": "metal3.io/v1alpha1", "kind": "PreprovisioningImage", "metadata": metadata, "spec": spec}
        self.api.call("POST", self.images, body)

    def change(self, name: str, **patch: Any) -> None:
        self.api.call("PATCH", f"{self.images}/{name}", patch, MERGE)

    def delete(self, name: str) -> None:
        self.api.call("DELETE", f"{self.images}/{name}")

    def get(self, name: str) -> dict[str, Any]:
        return self.api.get(f"{self.images}/{name}")

    def gone(self, name: str) -> bool:
        with contextlib.suppress(KubeError):
            self.get(name)
            return False
        return True

    def secret(self, name: str, *, labelled: bool = False, **data: str) -> None:
        """Make a Secret, or give it this content."""
        coded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        labels = {"environment.metal3.io": "baremetal"} if labelled else {}
        if self.api.create(self.secrets, {"metadata": {"name": name, "labels": labels}, "data": coded}) is None:
            nothing: dict[str, Any] = dict.fromkeys(self.api.get(f"{self.secrets}/{name}").get("data", {}))
            self.api.call("PATCH", f"{self.secrets}/{name}", {"data": {**nothing, **coded}}, MERGE)

    def version(self, secret: str) -> str:
        return self.api.get(f"{self.secrets}/{secret}")["metadata"]["resourceVersion"]

    def until(self, name: str, check: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The object, as soon as its status (empty: none) passes."""
        found: dict[str, Any] = {}

        def passes() -> bool:
            found.clear()
            found.update(self.get(name))
            return bool(check(found.get("status", {})))

        until(passes, name, show=lambda: json.dumps(found))
        return found

    def ready(self, name: str) -> dict[str, Any]:
        """The object, once it is ready for what it asks for now."""
        wanted = self.get(name)["metadata"]["generation"]

        def check(status: dict[str, Any]) -> bool:
            found = conditions(status).get("Ready")
            return bool(found) and found[:3] == ("True", "ImageSuccess", "Generated image") and found[3] >= wanted

        return self.until(name, check)

    def failed(self, name: str, reason: str) -> dict[str, Any]:
        """The object, once it has this error."""
        return self.until(name, lambda status: conditions(status).get("Error", ("", ""))[:2] == ("True", reason))


def conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, str, str, int]]:
    """Type → status, reason, message, generation."""
    return {
        one["type"]: (one["status"], one["reason"], one["message"], one["observedGeneration"])
        for one in status.get("conditions", [])
    }


class Replica(Program):
    """The image server in controller mode, as its pod would run it."""

    def __init__(self, kubeconfig: Path, bases: Path, key: Path, *arguments: str, namespace: str = "") -> None:
        super().__init__(
            "--images-publish-addr", PUBLISHED, "--secret-file", str(key), *arguments,
            bases=bases,
            environ={"KUBECONFIG": str(kubeconfig), "WATCH_NAMESPACE": namespace, "HOME": "/nonexistent"},
        )  # fmt: skip

    def until_ready(self) -> Replica:
        until(lambda: self.watch("/readyz") == "ok\n", "a replica that is ready", show=lambda: self.log[-5:])
        return self

    def fetch(self, url: str) -> requests.Response:
        """What this replica serves at a URL of a status."""
        assert url.startswith(PUBLISHED + "/"), url
        return self.get(urllib.parse.urlsplit(url).path)

    def serves(self, url: str) -> bool:
        return self.status(urllib.parse.urlsplit(url).path) == 200

    def number(self, name: str) -> int:
        """One of the controller's metrics."""
        line = next(
            line for line in self.watch("/metrics").splitlines() if line.startswith(f"kubenode_controller_{name} ")
        )
        return int(line.split()[1])


def ignition(image: bytes, folder: Path) -> dict[str, Any]:
    """The Ignition in an ISO."""
    file = folder / "fetched.iso"
    file.write_bytes(image)
    return json.loads(iso.inspect(str(file)).embedded["config.ign"])


def appended(image: bytes, base: bytes) -> dict[str, Any]:
    """The Ignition behind an initramfs."""
    assert image.startswith(base)
    found = {member.name: member.data for member in cpio.members(image[len(base) :].lstrip(b"\0"))}
    return json.loads(found["config.ign"])


def texts(config: Mapping[str, Any]) -> str:
    """All files of an Ignition, decoded, as one text."""
    return "\n".join(requests.utils.unquote(json.dumps(file)) for file in config["storage"]["files"])


def kubeconfig(cluster: RunningCluster, folder: Path, namespace: str = HOME, account: str = ACCOUNT) -> Path:
    """A file with which a program is this service account and nothing else."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = cluster.api.call("POST", path, review)["status"]["token"]
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "lab", "cluster": {"server": cluster.endpoint, "certificate-authority": str(cluster.ca_file)}}
        ],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": account}}],
        "current-context": "lab",
    }
    file = folder / f"{namespace}-{account}.kubeconfig"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        json.dump(content, out)
    return file


__all__ = ["PATIENCE", "Replica", "World"]
