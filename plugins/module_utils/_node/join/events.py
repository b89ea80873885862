# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kubernetes Events: what one says (pure), and posting it so that the same again is counted and not added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from ..._common.text import printable_words
from .cluster import Cluster, Refused

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


def message(text: str, output: Iterable[str] = (), most: int = LONGEST_MESSAGE) -> str:
    """``text``, and behind it as many of the last lines of ``output`` as fit, in at most ``most`` bytes.

    They are one line, since ``kubectl get events`` ends at the first line break.
    """
    head = printable_words(text)
    if len(head.encode("utf-8")) > most:
        return _first_bytes(head, most - len(_CUT.strip().encode("utf-8"))) + _CUT.strip()
    tail = _GAP.join(filter(None, (printable_words(one) for one in output)))
    if not tail:
        return head
    whole = "%s: %s" % (head, tail)
    if len(whole.encode("utf-8")) <= most:
        return whole
    room = most - len(("%s: %s" % (head, _CUT)).encode("utf-8"))
    return "%s: %s%s" % (head, _CUT, _last_bytes(tail, room)) if room > 0 else head


def build(given: dict[str, Any], about: dict[str, Any], now: str, instance: str) -> dict[str, Any]:
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
        "metadata": {"name": "%s.%s" % (about["name"][:_LONGEST_NAME].rstrip(".-"), key), "namespace": namespace},
        "involvedObject": about,
        "reason": given["reason"],
        "type": given["type"],
        "message": message(given["text"], given.get("output") or ()),
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
        raise Impossible("others change the Event %s all the time" % event["metadata"]["name"])

    @staticmethod
    def _count_of(found: dict[str, Any] | None) -> int:
        count = (found or {}).get("count")
        return count if isinstance(count, int) else 0

    def _look(self, kind: str, name: str, namespace: str, version: str) -> dict[str, Any]:
        try:
            if kind == "Machine" and not version:
                version = self._cluster.version_of(MACHINES)
                if not version:
                    raise Impossible("the cluster knows no Machine (%s)" % MACHINES)
            uid = self._cluster.uid_of(kind, name, namespace, version)
        except Refused as error:
            if error.status == _NOT_FOUND and kind != "Node":
                raise Impossible("there is no %s %s in the namespace %s" % (kind, name, namespace)) from error
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
