# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server as the controller uses it: the few requests it makes, and what may go wrong with them.

Objects are plain JSON both ways, so that nothing of them is lost that the client library does not know.
"""

from __future__ import annotations

import base64
import copy
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    json_value,
    moment,
    printable_words,
    to_whole_seconds,
)
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

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
        import yaml
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
    except (yaml.YAMLError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ImageError(
            f"no way to the API server: what KUBECONFIG ({environ.get('KUBECONFIG') or '~/.kube/config'}) names is no "
            f"kubeconfig ({printable_words(error)}); set it to a file that kubectl can use"
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
        self._client = DynamicClient(client, discoverer=lambda _client, _cache_file: None)
        self.host = str(settings.host)

    def image(self, namespace: str, name: str) -> dict[str, Any]:
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
    where = f" in namespace {namespace}" if namespace else ""
    return f'verb "{verb}" on {named} in API group "{group}"{where}'


def authorization(settings: Any) -> str:
    """The value of the Authorization header now; "" when certificates are used."""
    return str((settings.auth_settings().get("BearerToken") or {}).get("value") or "")


def _failure(method: str, path: str, error: Any) -> ApiFailed:
    status = int(error.status or 0)
    try:
        message = json_value(error.body).get("message") or ""
    except (TypeError, ValueError, AttributeError):
        message = str(error.reason or "")
    text = f"{method} {path}: HTTP {status}: {message!s:.500}"
    if status == 401:
        return ApiFailed(f"{text}; the API server does not take our token: does the service account still exist?")
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


# --- PreprovisioningImages and Secrets as JSON: conditions, what of a status changes, whose a Secret is (pure)


READY, ERROR = "Ready", "Error"
SUCCESS = "ImageSuccess"
CONFIGURATION_ERROR = "ConfigurationError"
MISSING_NETWORK_DATA = "MissingNetworkData"
BUILD_INVALID = "ImageBuildInvalid"
_LONGEST_MESSAGE = 32768  # characters of a condition's message that the schema takes
LABEL, LABEL_VALUE = "environment.metal3.io", "baremetal"  # only Secrets with it are watched
API_VERSION, KIND = f"{GROUP}/{VERSION}", "PreprovisioningImage"
_NMSTATE_KEY = "nmstate"


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty when there is none."""
    found: Mapping[str, Any] = next((one for one in status.get("conditions") or () if one.get("type") == kind), {})
    return found


def with_condition(
    status: Mapping[str, Any], kind: str, value: bool, reason: str, message: str, generation: int, now: float
) -> dict[str, Any]:
    """The status with one condition set; its time of transition moves only when its value does."""
    changed = copy.deepcopy(dict(status))
    conditions = changed.setdefault("conditions", [])
    if conditions is None:
        conditions = changed["conditions"] = []
    new = {
        "type": kind,
        "status": "True" if value else "False",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": to_whole_seconds(now),
    }
    for place, old in enumerate(conditions):
        if old.get("type") == kind:
            if old.get("status") == new["status"] and old.get("lastTransitionTime"):
                new["lastTransitionTime"] = old["lastTransitionTime"]
            conditions[place] = new
            return changed
    conditions.append(new)
    return changed


def condition_age(status: Mapping[str, Any], kind: str, now: float) -> float:
    """Seconds since the condition took its value; 0 when that is not known or in the future."""
    return max(0.0, now - unix_time(condition(status, kind).get("lastTransitionTime"), now))


def unix_time(text: Any, otherwise: float = 0.0) -> float:
    """Seconds since 1970 of a time that Kubernetes wrote; ``otherwise`` when it is none."""
    found = moment(text)
    return otherwise if found is None else float(int(found))


def same_values(one: Any, other: Any) -> bool:
    """Whether two values say the same; what is empty counts as absent."""
    return bool(_not_empty(one) == _not_empty(other))


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that makes ``new`` of ``old``; lists are replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(old.get(key), Mapping):
            inner = difference(old[key], value)
            if inner:
                patch[key] = inner
        elif key not in old or old[key] != value:
            patch[key] = value
    return patch


def _not_empty(value: Any) -> Any:
    """Without what is empty; None when nothing is left."""
    if isinstance(value, Mapping):
        inner = {key: _not_empty(one) for key, one in value.items()}
        value = {key: one for key, one in inner.items() if one is not None}
    elif isinstance(value, (list, tuple)):
        value = [_not_empty(one) for one in value]
    return None if value in ("", [], {}) else value


def claimed_secret(secret: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Secret with our label and the owner's reference; None when it has both.

    A label of another value stays. A reference as controller, as earlier versions wrote it, becomes a plain one.
    """
    new = copy.deepcopy(dict(secret))
    metadata = new.setdefault("metadata", {})
    labels = dict(metadata.get("labels") or {})
    labels.setdefault(LABEL, LABEL_VALUE)
    reference = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    references = list(metadata.get("ownerReferences") or ())
    for place, old in enumerate(references):
        if _is_of_image(old) and old.get("name") == reference["name"]:
            if old.get("uid") != reference["uid"] or old.get("controller"):
                references[place] = reference
            break
    else:
        references.append(reference)
    if labels == metadata.get("labels") and references == metadata.get("ownerReferences"):
        return None
    metadata["labels"], metadata["ownerReferences"] = labels, references
    return new


def secret_owners(secret: Mapping[str, Any]) -> list[str]:
    """The names of the images that have claimed it."""
    references = (secret.get("metadata") or {}).get("ownerReferences") or ()
    return [str(one.get("name")) for one in references if _is_of_image(one)]


def network_data(data: Mapping[str, str]) -> str:
    """The NMState document; "" when the Secret is empty: the host gets its addresses by DHCP."""
    if not data:
        return ""
    if _NMSTATE_KEY not in data:
        raise ImageError(f"network data Secret provided but missing required '{_NMSTATE_KEY}' key")
    try:
        return base64.b64decode(data[_NMSTATE_KEY] or "", validate=True).decode("utf-8")
    except ValueError as error:
        raise ImageError(f"the network data Secret's key '{_NMSTATE_KEY}' is no text in UTF-8") from error


def _is_of_image(reference: Mapping[str, Any]) -> bool:
    """Whether it refers to an image, in any version of the API."""
    return str(reference.get("apiVersion", "")).partition("/")[0] == GROUP and reference.get("kind") == KIND
