# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which pods of a Node are evicted, which stay, and which are in the way; evicting them until none is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ..api_server import old_kubelet, ready_condition
from . import cluster

_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")
#: Seconds between two looks: the first, and the longest.
_SOON, _LATER = 1.0, 5.0
_TOO_MANY, _FORBIDDEN, _NOT_FOUND = 429, 403, 404


class Plan(NamedTuple):
    """``evict``: pods; ``stay`` and ``refused``: ``{"pod", "why"}``."""

    evict: list[dict[str, Any]]
    stay: list[dict[str, str]]
    refused: list[dict[str, str]]


class NotDrained(Exception):
    """Pods are left; ``waiting`` says which and why, ``evicted`` which went."""

    def __init__(self, message: str, waiting: list[dict[str, str]], evicted: list[str]) -> None:
        super().__init__(message)
        self.waiting, self.evicted = waiting, evicted


def name_of(pod: dict[str, Any]) -> str:
    """``namespace/name``."""
    return f"{pod['metadata'].get('namespace')}/{pod['metadata'].get('name')}"


def judge(pods: list[dict[str, Any]], force: bool = False, delete_emptydir_data: bool = False) -> Plan:
    """What becomes of each pod of a Node (pure), by the rules of ``kubectl drain``."""
    plan = Plan([], [], [])
    for pod in sorted(pods, key=name_of):
        stays = _stays(pod)
        if stays:
            plan.stay.append({"pod": name_of(pod), "why": stays})
            continue
        reasons = [] if _has_ended(pod) or _is_leaving(pod) else _in_the_way(pod, force, delete_emptydir_data)
        plan.refused.extend({"pod": name_of(pod), "why": why} for why in reasons)
        plan.evict.append(pod)
    return plan


def _stays(pod: dict[str, Any]) -> str:
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return "mirror pod: a file of the machine makes it"
    owner = _controller(pod)
    # One that has ended is what its DaemonSet would clear away.
    if owner.get("kind") == "DaemonSet" and not _has_ended(pod):
        return "of a DaemonSet, which would make it again"
    return ""


def _in_the_way(pod: dict[str, Any], force: bool, delete_emptydir_data: bool) -> list[str]:
    reasons = []
    if not force and not _controller(pod):
        reasons.append("no controller would make it again (force; of the playbooks kubenode_evict_force)")
    volumes = (pod.get("spec") or {}).get("volumes") or []
    if not delete_emptydir_data and any(volume.get("emptyDir") is not None for volume in volumes):
        reasons.append(
            "what it has in emptyDir volumes would be lost (delete_emptydir_data; of the playbooks "
            "kubenode_evict_emptydir_data)"
        )
    return reasons


def _controller(pod: dict[str, Any]) -> dict[str, Any]:
    owners: list[dict[str, Any]] = pod["metadata"].get("ownerReferences") or []
    for owner in owners:
        if owner.get("controller"):
            return owner
    return {}


def _has_ended(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _is_leaving(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(node: dict[str, Any], boot_id: str = "", kubelet_version: str = "") -> tuple[bool, str]:
    """Whether a Node is Ready, as of this boot of its machine and this kubelet when they are given; else why not."""
    status = node.get("status") or {}
    found = ready_condition(node)
    if boot_id and (status.get("nodeInfo") or {}).get("bootID") != boot_id:
        return False, "its kubelet has not reported this boot yet"
    old = old_kubelet(node, kubelet_version)
    if old:
        return False, old
    if not found:
        return False, "it has no condition Ready yet"
    if found.get("status") == "True":
        return True, ""
    return False, f"Ready is {found.get('status')}: {found.get('message') or found.get('reason') or ''}"


def is_silent(node: dict[str, Any]) -> bool:
    """Whether the kubelet has stopped reporting, so that pods which are being deleted stay."""
    return ready_condition(node).get("status") == "Unknown"


class Drain:
    """Evicts the pods of one Node. ``cluster``: a :class:`cluster.Cluster`."""

    def __init__(
        self,
        cluster: Any,
        name: str,
        timeout: float,
        silent: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._name, self._timeout, self._silent = cluster, name, timeout, silent
        self._clock, self._sleep = clock, sleep
        self._why: dict[str, str] = {}
        self._asked: set[str] = set()

    def run(self, pods: list[dict[str, Any]], force: bool, delete_emptydir_data: bool) -> list[str]:
        """Evict these pods, and those that came meanwhile; their names when all are gone, or :class:`NotDrained`."""
        began, pause, known = self._clock(), _SOON, {name_of(pod) for pod in pods}
        left = pods
        while True:
            for pod in left:
                if self._clock() - began < self._timeout:
                    self._evict(pod)
            left, why = self._look(left, force, delete_emptydir_data)
            known.update(name_of(pod) for pod in left)
            if not left and not why:
                return sorted(known)
            if self._clock() - began >= self._timeout:
                waiting = [{"pod": name_of(pod), "why": self._reason(pod)} for pod in left]
                gone = sorted(known - {name_of(pod) for pod in left})
                raise NotDrained(
                    f"after {self._timeout} s there are pods left on the Node {self._name}: {in_words(waiting) or why}",
                    waiting,
                    gone,
                )
            self._sleep(pause)
            pause = min(pause * 1.5, _LATER)

    def _look(
        self, left: list[dict[str, Any]], force: bool, delete_emptydir_data: bool
    ) -> tuple[list[dict[str, Any]], str]:
        try:
            plan = judge(self._cluster.pods_on(self._name), force, delete_emptydir_data)
        except (cluster.NoAnswer, cluster.Refused) as error:
            return left, str(error)
        if plan.refused:
            # A controller that sets nodeName itself bound it: a cordon does not keep it away.
            raise NotDrained(
                f"a pod came to the Node {self._name} that is not to be evicted: {in_words(plan.refused)}",
                plan.refused,
                [],
            )
        # A silent kubelet ends no pods; they go when the Node is deleted.
        return [pod for pod in plan.evict if not (self._silent and _is_leaving(pod))], ""

    def _evict(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._asked or _is_leaving(pod):
            return
        try:
            self._cluster.evict(pod)
        except cluster.Refused as error:
            self._refused(pod, error)
        except cluster.NoAnswer as error:
            self._why[uid] = str(error)
        else:
            self._asked.add(uid)

    def _refused(self, pod: dict[str, Any], error: Any) -> None:
        uid = pod["metadata"]["uid"]
        if error.status == _NOT_FOUND:
            self._asked.add(uid)
        elif error.status == _TOO_MANY:
            self._why[uid] = f"a PodDisruptionBudget does not allow it: {error.text}"
        elif error.status == _FORBIDDEN and "being terminated" not in error.text:
            text = f"the kubeconfig's user may not evict {name_of(pod)}: {error.text}; it needs create on pods/eviction"
            raise NotDrained(text, [{"pod": name_of(pod), "why": error.text}], [])
        else:
            self._why[uid] = str(error)

    def _reason(self, pod: dict[str, Any]) -> str:
        uid = pod["metadata"]["uid"]
        if uid in self._asked or _is_leaving(pod):
            return "it is still ending"
        return self._why.get(uid, "it came a moment ago")


def in_words(refused: list[dict[str, str]]) -> str:
    """Pods, and what is in the way, for people; at most ten."""
    text = "; ".join(f"{one['pod']}: {one['why']}" for one in refused[:10])
    return text + (f" and {len(refused) - 10} more" if len(refused) > 10 else "")
