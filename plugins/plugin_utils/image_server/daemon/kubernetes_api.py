# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server as the controller uses it: the few requests it makes, and what may go wrong with them.

Objects are plain JSON both ways, so that nothing of them is lost that the client library does not know.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError

GROUP, VERSION, PLURAL = "metal3.io", "v1alpha1", "preprovisioningimages"
# (API group, resource, subresource) → what the controller does with it: with images wherever it looks for them, with
# Secrets only in the namespaces that it serves. Secrets are watched where that is a right, else read now and then.
IMAGE_RIGHTS = {(GROUP, PLURAL, ""): ("get", "list", "watch", "patch"), (GROUP, PLURAL, "status"): ("patch",)}
SECRET_RIGHTS = {("", "secrets", ""): ("get", "update")}
WATCH_RIGHTS = {("", "secrets", ""): ("list", "watch")}
MERGE = "application/merge-patch+json"
_AGENT = "kubenode-image-server"
_TIMEOUT = (5, 30)  # seconds to connect, to answer
_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class ApiFailed(Exception):
    """The API server did not do what was asked; trying again may help."""


class NotFound(ApiFailed):
    """There is no such object."""


class Conflict(ApiFailed):
    """The object was changed by another client since it was read."""


class Forbidden(ApiFailed):
    """The service account lacks a right, which the text names."""


class Unreachable(ApiFailed):
    """No answer."""


def configuration(environ: Mapping[str, str]) -> Any:
    """Where the API server is and who we are: in a cluster its service account, else a kubeconfig."""
    try:
        from kubernetes import config
        from kubernetes.client import Configuration
    except ImportError as error:
        raise ImageError(
            "the controller needs the Python library kubernetes; install it: pip install kubernetes"
        ) from error
    found = Configuration()
    try:
        if environ.get("KUBERNETES_SERVICE_HOST") and not environ.get("KUBECONFIG"):
            config.load_incluster_config(client_configuration=found)
        else:
            file = environ.get("KUBECONFIG") or None
            config.load_kube_config(config_file=file, client_configuration=found)
    except (config.ConfigException, OSError, ValueError) as error:
        raise ImageError(
            f"no way to the API server: {error}; run in a cluster with a service account, or set KUBECONFIG to a file"
        ) from error
    return found


class Api:
    """One API server and one identity; any number of threads."""

    def __init__(self, settings: Any) -> None:
        """``settings`` is what `configuration` gives."""
        from kubernetes.client import ApiClient
        from kubernetes.dynamic import DynamicClient

        # Of the dynamic client only its requests are used: what is asked for is known, nothing is to be discovered.
        client = ApiClient(settings)
        client.user_agent = _AGENT  # also the name of the field manager
        self._client = DynamicClient(client, discoverer=_undiscovered)
        self.host = str(settings.host)

    def image(self, namespace: str, name: str) -> dict[str, Any]:
        """A PreprovisioningImage."""
        return self._call("GET", _image(namespace, name))

    def images(self, namespace: str | None) -> list[dict[str, Any]]:
        """Every PreprovisioningImage of a namespace; None: of all."""
        return list(self._call("GET", _image(namespace)).get("items") or ())

    def set_finalizers(self, image: Mapping[str, Any], finalizers: tuple[str, ...]) -> dict[str, Any]:
        """Write them, unless the object was changed meanwhile; returns the new object."""
        return self._patch(image, {"metadata": {"finalizers": list(finalizers)}}, "")

    def set_status(self, image: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
        """Lay a merge patch over the status, unless the object was changed meanwhile; returns the new object."""
        return self._patch(image, {"status": dict(difference)}, "/status")

    def secret(self, namespace: str, name: str) -> dict[str, Any]:
        """A Secret."""
        return self._call("GET", _secret(namespace, name))

    def replace_secret(self, secret: Mapping[str, Any]) -> dict[str, Any]:
        """Write a Secret that was read before, unless it was changed meanwhile; returns the new one."""
        metadata = secret["metadata"]
        return self._call("PUT", _secret(metadata["namespace"], metadata["name"]), dict(secret))

    def kind_exists(self) -> bool:
        """Whether the cluster knows PreprovisioningImages."""
        try:
            found = self._call("GET", f"/apis/{GROUP}/{VERSION}")
        except NotFound:
            return False
        return any(one.get("name") == PLURAL for one in found.get("resources") or ())

    def missing_rights(
        self, namespace: str | None, rights: Mapping[tuple[str, str, str], tuple[str, ...]]
    ) -> list[str]:
        """What of these the service account may not do there."""
        missing = []
        for (group, resource, subresource), verbs in rights.items():
            for verb in verbs:
                attributes = {"group": group, "resource": resource, "verb": verb, "subresource": subresource}
                if namespace:
                    attributes["namespace"] = namespace
                review = {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": attributes},
                }
                if not self._call("POST", _REVIEWS, review).get("status", {}).get("allowed"):
                    missing.append(right(verb, group, resource, subresource, namespace))
        return missing

    def _patch(self, image: Mapping[str, Any], body: dict[str, Any], subresource: str) -> dict[str, Any]:
        metadata = image["metadata"]
        body.setdefault("metadata", {})["resourceVersion"] = metadata["resourceVersion"]
        return self._call("PATCH", _image(metadata["namespace"], metadata["name"]) + subresource, body, MERGE)

    def _call(self, method: str, path: str, body: Any = None, kind: str = "") -> dict[str, Any]:
        from kubernetes.dynamic.exceptions import DynamicApiError
        from urllib3.exceptions import HTTPError

        try:
            answer = self._client.request(
                method,
                path,
                body=body,
                serialize=False,
                _request_timeout=_TIMEOUT,
                **({"content_type": kind} if kind else {}),
            )
            found: dict[str, Any] = json_value(answer.data)
            return found
        except DynamicApiError as error:
            raise _failure(method, path, error) from None  # its text has headers of request and answer
        except (HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"the API server at {self.host} does not answer: {error}") from error


def right(verb: str, group: str, resource: str, subresource: str = "", namespace: str | None = None) -> str:
    """A right as people look for it in a Role."""
    named = resource + ("/" + subresource if subresource else "")
    return 'verb "%s" on %s in API group "%s"%s' % (
        verb, named, group, f" in namespace {namespace}" if namespace else ""
    )  # fmt: skip


def authorization(settings: Any) -> str:
    """The value of the Authorization header now; "" when certificates are used."""
    return str((settings.auth_settings().get("BearerToken") or {}).get("value") or "")


def from_environment() -> Any:
    """`configuration` for this process."""
    return configuration(os.environ)


def _failure(method: str, path: str, error: Any) -> ApiFailed:
    status = int(error.status or 0)
    try:
        message = json_value(error.body).get("message") or ""
    except (TypeError, ValueError, AttributeError):
        message = str(error.reason or "")
    text = f"{method} {path}: HTTP {status}: {message!s:.500}"
    if status == 401:
        return Forbidden(f"{text}; the API server does not take our token: does the service account still exist?")
    if status == 403:
        return Forbidden(f"{text}; the service account lacks {_right_of(method, path)}; see deploy/image_server")
    if status == 409:
        return Conflict(text)
    if status in (404, 410):
        return NotFound(text)
    return ApiFailed(text)


def _right_of(method: str, path: str) -> str:
    parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
    group = parts[1] if parts[0] == "apis" else ""
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    namespace = parts[1] if parts[:1] == ["namespaces"] else None
    rest = parts[2:] if namespace else parts
    verb = "list" if method == "GET" and len(rest) == 1 else _VERBS.get(method, method.lower())
    return right(verb, group, rest[0], rest[2] if len(rest) > 2 else "", namespace)


def _image(namespace: str | None, name: str = "") -> str:
    return _path(f"/apis/{GROUP}/{VERSION}", PLURAL, namespace, name)


def _secret(namespace: str, name: str) -> str:
    return _path("/api/v1", "secrets", namespace, name)


def _path(root: str, resource: str, namespace: str | None, name: str) -> str:
    quoted = ["namespaces", urllib.parse.quote(namespace, safe="")] if namespace else []
    return "/".join([root, *quoted, resource, *([urllib.parse.quote(name, safe="")] if name else [])])


def _undiscovered(_client: Any, _cache_file: Any) -> None:
    return None
