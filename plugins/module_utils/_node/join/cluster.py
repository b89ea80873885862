# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The cluster as its administrator sees it, on the controller: Nodes, Secrets of bootstrap tokens, Events.

It is asked by the official client of the Kubernetes API.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible.module_utils.basic import missing_required_lib

from ..._common.own_run import ENDED, own_run_of
from ..._common.text import json_value, printable_words, shortened
from ..api_server import CORDONED
from . import tokens

try:
    import kubernetes
    import kubernetes.client.exceptions
    import yaml

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

_TIMEOUT = 30
_LONGEST_TEXT = 500


def options() -> dict[str, Any]:
    """Options of every module that speaks to a cluster with a kubeconfig."""
    return {"kubeconfig": {"type": "path"}, "context": {"type": "str"}}


class Refused(Exception):
    """The API server answers with an error."""

    def __init__(self, status: int, text: str, call: str) -> None:
        known = (
            "; it does not know the kubeconfig's user, or its token or certificate has ended" if status == 401 else ""
        )
        super().__init__(f"the API server answers {status} for {call}: {text}{known}")
        self.status, self.text = status, text


class NoAnswer(Exception):
    """The API server was not reached, or what came was no answer of one."""


def _secrets(configuration: Any) -> set[str]:
    """Password and token of a kubeconfig; a token with and without the word Bearer before it."""
    sent = [configuration.password, *(configuration.api_key or {}).values()]
    return {part for text in sent if text for part in (text, text.rpartition(" ")[2])}


class Cluster:
    """A cluster through ``module``'s kubeconfig.

    A failed request ends the module with a text that names the error, but for :meth:`pods_on`, :meth:`node_now`,
    :meth:`evict` and what is asked of Events, which raise :class:`Refused` or :class:`NoAnswer` for those who try again
    or go on.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        if IMPORT_ERROR is not None:
            module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
        params = module.params
        try:
            client = kubernetes.config.new_client_from_config(
                config_file=params["kubeconfig"], context=params["context"]
            )
        except (kubernetes.config.ConfigException, OSError, ValueError) as error:
            module.fail_json(msg=f"kubeconfig: {params['kubeconfig'] or '(default)'} cannot be used: {error}")
        except (yaml.YAMLError, TypeError, AttributeError, LookupError, RecursionError) as error:
            module.fail_json(
                msg=f"kubeconfig: {params['kubeconfig'] or '(default)'} is no kubeconfig ({printable_words(error)}); "
                "name a file that kubectl can use"
            )
        # Ansible masks the values of options; these come from a file.
        module.no_log_values.update(_secrets(client.configuration))
        self._client = client
        self._core = kubernetes.client.CoreV1Api(client)
        self._eviction: str | None = None
        self._own_run = own_run_of(params)

    def node(self, name: str) -> dict[str, Any] | None:
        """The Node as the API's object, None when there is none, and None with a warning when it may not be seen."""
        try:
            return self._ask(self._core.read_node, name)
        except Refused as error:
            if error.status == 403:
                self._module.warn(f"whether there is a Node {name} is not known: {error.text}")
            elif error.status != 404:
                self._fail(error)
        except NoAnswer as error:
            self._fail(error)
        return None

    def node_now(self, name: str) -> dict[str, Any]:
        """The same for those who wait: every error is raised."""
        return self._ask(self._core.read_node, name)

    def delete_node(self, node: dict[str, Any]) -> bool:
        """Delete this very Node, not one that took its name meanwhile; whether it was there."""
        same = kubernetes.client.V1Preconditions(uid=node["metadata"]["uid"])
        body = kubernetes.client.V1DeleteOptions(preconditions=same)
        return self._call(self._core.delete_node, node["metadata"]["name"], body=body) is not None

    def cordon(self, node: dict[str, Any], on: bool, manager: str) -> dict[str, Any]:
        """Make this very Node unschedulable, or schedulable again, and note that it was ``manager``."""
        metadata = node["metadata"]
        # With the uid of another Node the API server refuses the patch.
        body = {
            "metadata": {"uid": metadata["uid"], "annotations": {CORDONED: manager if on else None}},
            "spec": {"unschedulable": True if on else None},
        }
        found = self._call(self._core.patch_node, metadata["name"], body, field_manager=manager)
        if found is None:
            self._module.fail_json(msg=f"the Node {metadata['name']} is gone")
        return found or {}

    def pods_on(self, name: str) -> list[dict[str, Any]]:
        found = self._ask(self._core.list_pod_for_all_namespaces, field_selector=f"spec.nodeName={name}")
        return found.get("items") or []

    def evict(self, pod: dict[str, Any]) -> None:
        """Ask for the eviction of this very pod; a PodDisruptionBudget is :class:`Refused` with status 429."""
        metadata = pod["metadata"]
        body = {
            "apiVersion": self._eviction_version(),
            "kind": "Eviction",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
        }
        self._ask(self._core.create_namespaced_pod_eviction, metadata["name"], metadata["namespace"], body)

    def secret_exists(self, name: str) -> bool:
        """Whether there is such a Secret, of a token."""
        return self._call(self._core.read_namespaced_secret, name, tokens.NAMESPACE) is not None

    def create_secret(self, body: Any) -> None:
        self._call(self._core.create_namespaced_secret, tokens.NAMESPACE, body)

    def delete_secret(self, name: str) -> bool:
        """Delete such a Secret; whether there was one."""
        return self._call(self._core.delete_namespaced_secret, name, tokens.NAMESPACE) is not None

    def version_of(self, group: str) -> str:
        """What the server prefers of an API group, such as ``cluster.x-k8s.io/v1beta2``; empty without the group."""
        groups = self._ask(kubernetes.client.ApisApi(self._client).get_api_versions).get("groups") or []
        found = [one for one in groups if one.get("name") == group]
        return str((found[0].get("preferredVersion") or {}).get("groupVersion") or "") if found else ""

    def uid_of(self, kind: str, name: str, namespace: str, version: str) -> str:
        """The uid of a Node, a ConfigMap or a Machine of Cluster API, whose ``version`` is ``group/version``."""
        if kind == "Node":
            found = self._ask(self._core.read_node, name)
        elif kind == "ConfigMap":
            found = self._ask(self._core.read_namespaced_config_map, name, namespace)
        else:
            group, _slash, number = version.partition("/")
            custom = kubernetes.client.CustomObjectsApi(self._client)
            found = self._ask(custom.get_namespaced_custom_object, group, number, namespace, "machines", name)
        return str((found.get("metadata") or {}).get("uid") or "")

    def event(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """The Event of the name and namespace that ``event`` has; None when there is none."""
        metadata = event["metadata"]
        try:
            return self._ask(self._core.read_namespaced_event, metadata["name"], metadata["namespace"])
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def create_event(self, event: dict[str, Any]) -> None:
        self._ask(self._core.create_namespaced_event, event["metadata"]["namespace"], event)

    def change_event(self, event: dict[str, Any], change: dict[str, Any]) -> None:
        """Change the Event of the name and namespace that ``event`` has."""
        metadata = event["metadata"]
        self._ask(self._core.patch_namespaced_event, metadata["name"], metadata["namespace"], change)

    def _eviction_version(self) -> str:
        """The version of evictions that this API server knows: policy/v1 since 1.22, policy/v1beta1 before."""
        if self._eviction is None:
            found = self._ask(self._core.get_api_resources).get("resources") or []
            known = [one for one in found if one.get("name") == "pods/eviction"]
            if not known:
                raise Refused(404, "it knows no evictions (pods/eviction)", "evict")
            self._eviction = f"{known[0].get('group') or 'policy'}/{known[0].get('version') or 'v1'}"
        return self._eviction

    def _call(self, function: Callable[..., Any], *values: Any, **more: Any) -> dict[str, Any] | None:
        """As :meth:`_ask`; None for what is not there, and every other error ends the module."""
        try:
            return self._ask(function, *values, **more)
        except Refused as error:
            if error.status != 404:
                self._fail(error)
        except NoAnswer as error:
            self._fail(error)
        return None

    def _ask(self, function: Callable[..., Any], *values: Any, **more: Any) -> dict[str, Any]:
        """The API's answer as the dictionary that went over the wire."""
        if self._own_run is not None and self._own_run.has_ended:
            self._module.fail_json(msg=ENDED)
        try:
            answer = function(*values, _request_timeout=_TIMEOUT, **more)
        except kubernetes.client.exceptions.ApiException as error:
            if not error.status:
                raise NoAnswer(_line(error.reason)) from error
            raise Refused(error.status, _why(error), function.__name__) from error
        except Exception as error:  # pylint: disable=broad-except
            raise NoAnswer(_line(error)) from error
        return self._client.sanitize_for_serialization(answer) or {}

    def _fail(self, error: Exception) -> None:
        if isinstance(error, Refused):
            self._module.fail_json(msg=str(error))
        self._module.fail_json(
            msg=f"the cluster of the kubeconfig does not answer: {error}",
            failure={"code": "api_unreachable", "detail": str(error)},
        )


def _why(error: Any) -> str:
    """What the Status in the body of an answer says, with its causes; the HTTP reason where there is none."""
    try:
        status = json_value(error.body)
        causes = [str(one.get("message")) for one in (status.get("details") or {}).get("causes") or []]
        texts = [str(status.get("message") or ""), *causes]
    except (TypeError, ValueError, AttributeError):
        texts = []
    return _line(" ".join(filter(None, texts)) or error.reason)


def _line(text: object) -> str:
    """One line of printable text: an answer may hold anything."""
    return shortened(printable_words(text), _LONGEST_TEXT)


_PUBLISHED = ("InternalIP", "ExternalIP")


def owner_options() -> dict[str, Any]:
    """Options that say which machine a Node must be of."""
    return {
        "machine_id": {"type": "str", "default": ""},
        "provider_id": {"type": "str", "default": ""},
        "addresses": {"type": "list", "elements": "str", "default": []},
    }


def find_own(reached: Cluster, params: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The Node of these ``options`` and ``name``, and whether it is the machine's own.

    A machine whose name is qualified most often has the short one as its hostname, and so its Node has. It is taken
    where there is no Node of the whole name, more than a name proves it, and ``params`` have its name from then on.
    """
    proof = params["machine_id"], params["provider_id"], params["addresses"]
    found = reached.node(params["name"])
    short = str(params["name"]).partition(".")[0]
    if found is None and any(proof) and short not in ("", params["name"]):
        other = reached.node(short)
        if other is not None and is_own(other, *proof):
            found, params["name"] = other, short
    return found, found is not None and is_own(found, *proof)


def is_own(node: dict[str, Any], machine_id: str = "", provider_id: str = "", addresses: Sequence[str] = ()) -> bool:
    """Whether a Node is the machine's; without anything to compare, its name is the proof.

    The machine ID is what the kubelet read on the machine, so it decides where it is known. A machine that does not
    answer is known by its provider ID, or by an address that no other machine has.
    """
    status, spec = node.get("status") or {}, node.get("spec") or {}
    if machine_id:
        return bool((status.get("nodeInfo") or {}).get("machineID") == machine_id)
    if not provider_id and not addresses:
        return True
    if provider_id and spec.get("providerID"):
        return bool(spec["providerID"] == provider_id)
    shown = [one.get("address") for one in status.get("addresses") or [] if one.get("type") in _PUBLISHED]
    return bool(set(shown).intersection(addresses))


#: The API takes no longer message, in bytes of UTF-8.
LONGEST_MESSAGE = 1024
COMPONENT = "kubenode.provision"
#: Events of objects without a namespace are kept there.
DEFAULT_NAMESPACE = "default"
MACHINES = "cluster.x-k8s.io"
_CORE = {"Node": "v1", "ConfigMap": "v1"}
KINDS = (*_CORE, "Machine")
_NOT_FOUND, _CONFLICT, _FORBIDDEN = 404, 409, 403
_LONGEST_NAME = 200
_GAP, _CUT = " | ", "… "


class Impossible(Exception):
    """The Event cannot be posted; the text says why."""


def event_message(text: str, output: Iterable[str] = ()) -> str:
    """``text``, and behind it as many of the last lines of ``output`` as fit, in at most LONGEST_MESSAGE bytes.

    They are one line, since ``kubectl get events`` ends at the first line break.
    """
    head = printable_words(text)
    if len(head.encode("utf-8")) > LONGEST_MESSAGE:
        return _first_bytes(head, LONGEST_MESSAGE - len(_CUT.strip().encode("utf-8"))) + _CUT.strip()
    tail = _GAP.join(filter(None, (printable_words(one) for one in output)))
    if not tail:
        return head
    whole = f"{head}: {tail}"
    if len(whole.encode("utf-8")) <= LONGEST_MESSAGE:
        return whole
    room = LONGEST_MESSAGE - len(f"{head}: {_CUT}".encode())
    return f"{head}: {_CUT}{_last_bytes(tail, room)}" if room > 0 else head


def build_event(given: dict[str, Any], about: dict[str, Any], now: str, instance: str) -> dict[str, Any]:
    """The Event for the API (core/v1).

    ``given``: ``reason``, ``type``, ``text``, ``output`` and ``subject`` of one Event of the module; ``about``: the
    reference to its object; ``now``: RFC 3339; ``instance``: the name of this controller.
    """
    namespace = about.get("namespace") or DEFAULT_NAMESPACE
    parts = [about.get(key, "") for key in ("apiVersion", "kind", "name", "uid")]
    parts += [namespace, given["reason"], given["type"], given.get("subject") or ""]
    key = hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name'][:_LONGEST_NAME].rstrip('.-')}.{key}", "namespace": namespace},
        "involvedObject": about,
        "reason": given["reason"],
        "type": given["type"],
        "message": event_message(given["text"], given.get("output") or ()),
        "source": {"component": COMPONENT, "host": instance},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


class Events:
    """Posts Events; objects and their kinds are looked up once."""

    def __init__(self, cluster: Cluster, check: bool) -> None:
        self._cluster, self._check = cluster, check
        self._objects: dict[tuple[str, ...], dict[str, Any]] = {}

    def about(self, given: dict[str, Any]) -> dict[str, Any]:
        """The reference to an object: ``kind``, ``name``, and perhaps ``namespace`` and ``api_version``.

        Raises :class:`Impossible` for an object that is not there. A Node may come later.
        """
        kind, name = given["kind"], given["name"]
        namespace = "" if kind == "Node" else given.get("namespace") or DEFAULT_NAMESPACE
        key = (kind, name, namespace, given.get("api_version") or "")
        if key not in self._objects:
            self._objects[key] = self._look(kind, name, namespace, given.get("api_version") or _CORE.get(kind, ""))
        return self._objects[key]

    def post(self, event: dict[str, Any]) -> int:
        """Create the Event, or count it once more when there is one with the same name; the count then."""
        if self._check:
            return self._count_of(self._cluster.event(event)) + 1
        for _again in range(5):
            try:
                self._cluster.create_event(event)
                return 1
            except Refused as error:
                if error.status != _CONFLICT:
                    raise
            found = self._cluster.event(event)
            if found is None:
                continue
            count = self._count_of(found) + 1
            change = {key: event[key] for key in ("message", "lastTimestamp", "reportingInstance", "source")}
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                self._cluster.change_event(event, {**change, "count": count, "metadata": metadata})
                return count
            except Refused as error:
                # Another run counted it, or its time was over.
                if error.status not in (_CONFLICT, _NOT_FOUND):
                    raise
        raise Impossible(f"others change the Event {event['metadata']['name']} all the time")

    @staticmethod
    def _count_of(found: dict[str, Any] | None) -> int:
        count = (found or {}).get("count")
        return count if isinstance(count, int) else 0

    def _look(self, kind: str, name: str, namespace: str, version: str) -> dict[str, Any]:
        try:
            if kind == "Machine" and not version:
                version = self._cluster.version_of(MACHINES)
                if not version:
                    raise Impossible(f"the cluster knows no Machine ({MACHINES})")
            uid = self._cluster.uid_of(kind, name, namespace, version)
        except Refused as error:
            if error.status == _NOT_FOUND and kind != "Node":
                raise Impossible(f"there is no {kind} {name} in the namespace {namespace}") from error
            if error.status not in (_NOT_FOUND, _FORBIDDEN):
                raise
            uid = ""
        # As the kubelet does; "kubectl describe node" looks for both.
        uid = uid or (name if kind == "Node" else "")
        about = {"apiVersion": version, "kind": kind, "name": name, "namespace": namespace, "uid": uid}
        return {key: value for key, value in about.items() if value}


def _first_bytes(text: str, most: int) -> str:
    return text.encode("utf-8")[:most].decode("utf-8", "ignore")


def _last_bytes(text: str, most: int) -> str:
    return text.encode("utf-8")[-most:].decode("utf-8", "ignore")
