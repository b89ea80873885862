# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of each pod of a Node, whose a cordon is, and when a drain ends."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster, drain


def pod(name, kind="ReplicaSet", phase="Running", **metadata):
    owners = [{"kind": "Something", "controller": False}, {"kind": kind, "controller": True}] if kind else []
    about = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": owners, **metadata}
    return {"metadata": about, "spec": {"volumes": []}, "status": {"phase": phase}}


def emptied(one):
    return {**one, "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}


def test_what_stays_goes_and_is_in_the_way():
    mirror = pod("mirror", "Node", annotations={"kubernetes.io/config.mirror": "x"})
    pods = [pod("web"), pod("ds", "DaemonSet"), pod("ds-ended", "DaemonSet", "Failed"), mirror, pod("bare", None)]
    plan = drain.judge(pods)
    assert [one["metadata"]["name"] for one in plan.evict] == ["bare", "ds-ended", "web"]
    assert [one["pod"] for one in plan.stay] == ["ns/ds", "ns/mirror"]
    assert [one["pod"] for one in plan.refused] == ["ns/bare"]
    assert drain.judge(pods, force=True).refused == []


@pytest.mark.parametrize(
    ("one", "options"),
    [
        (emptied(pod("cache")), {"delete_emptydir_data": True}),
        (pod("bare", None), {"force": True}),
        (emptied(pod("both", None)), {"force": True, "delete_emptydir_data": True}),
    ],
)
def test_what_would_be_lost_needs_a_word(one, options):
    assert len(drain.judge([one]).refused) == len(options)
    assert drain.judge([one], **options).refused == []
    ended = {**one, "status": {"phase": "Succeeded"}}
    leaving = {**one, "metadata": {**one["metadata"], "deletionTimestamp": "2026-11-23T00:00:00Z"}}
    assert drain.judge([ended, leaving]).refused == []


@pytest.mark.parametrize(
    ("noted", "entries", "unschedulable", "ours"),
    [
        ("us", [("us", {"f:unschedulable": {}})], True, True),
        ("us", [("us", {"f:unschedulable": {}})], None, False),
        ("us", [("kubectl", {"f:unschedulable": {}}), ("us", {"f:taints": {}})], True, False),
        # the API server notes nothing of the kind
        ("us", [("us", None)], True, True),
        ("us", [], True, True),
        ("others", [("us", {"f:unschedulable": {}})], True, False),
        (None, [("us", {"f:unschedulable": {}})], True, False),
    ],
)
def test_whose_cordon_it_is(noted, entries, unschedulable, ours):
    managed = [{"manager": manager, "fieldsV1": fields and {"f:spec": fields}} for manager, fields in entries]
    about = {"managedFields": managed, "annotations": {api_server.CORDONED: noted} if noted else None}
    node = {"metadata": about, "spec": {"unschedulable": unschedulable}}
    assert (api_server.cordoned_by(node) == "us") is ours


def test_ready_counts_for_the_boot_that_was_asked_for():
    ready = {"type": "Ready", "status": "True"}
    node = {"status": {"nodeInfo": {"bootID": "b"}, "conditions": [{"type": "Other", "status": "False"}, ready]}}
    assert drain.is_ready(node) == (True, "")
    assert drain.is_ready(node, "b") == (True, "")
    assert not drain.is_ready(node, "c")[0]
    assert drain.is_ready(node, kubelet_version="1.37.1") == (False, "its kubelet still reports the version (none)")
    node["status"]["nodeInfo"]["kubeletVersion"] = "v1.36.4"
    assert drain.is_ready(node, "b", "1.37.1") == (False, "its kubelet still reports the version v1.36.4")
    assert drain.is_ready(node, "b", "1.36.4") == (True, "")
    ready["status"] = "Unknown"
    assert not drain.is_ready(node)[0]
    assert drain.is_silent(node)
    assert not drain.is_ready({})[0]


class World:
    """A cluster whose clock only moves during a sleep."""

    def __init__(self, *pods, refusals=()):
        self.pods, self.refusals, self.now, self.asked = list(pods), list(refusals), 0.0, []

    def pods_on(self, _name):
        return list(self.pods)

    def evict(self, one):
        self.asked.append(one["metadata"]["name"])
        if self.refusals:
            refusal = self.refusals.pop(0)
            if refusal is not None:
                raise refusal
        self.pods.remove(one)

    def sleep(self, seconds):
        self.now += seconds

    def drain(self, timeout=60, silent=False):
        moving = drain.Drain(self, "n", timeout, silent, clock=lambda: self.now, sleep=self.sleep)
        return moving.run(self.pods_on("n"), False, False)


def busy():
    return cluster.Refused(429, "the budget", "evict")


def test_refusals_that_pass_are_waited_for():
    world = World(pod("a"), refusals=[busy(), cluster.NoAnswer("reset"), cluster.Refused(500, "x", "e"), None])
    assert world.drain() == ["ns/a"]
    assert world.asked == ["a"] * 4


def test_a_budget_that_stays_ends_with_the_time():
    world = World(pod("a"), refusals=[busy()] * 100)
    with pytest.raises(drain.NotDrained) as stopped:
        world.drain(timeout=30)
    assert stopped.value.waiting == [{"pod": "ns/a", "why": "a PodDisruptionBudget does not allow it: the budget"}]
    assert 30 <= world.now < 40


def test_missing_rights_end_it_at_once_and_a_namespace_that_goes_does_not():
    with pytest.raises(drain.NotDrained, match="pods/eviction"):
        World(pod("a"), refusals=[cluster.Refused(403, "forbidden", "evict")]).drain()
    world = World(pod("a"), refusals=[cluster.Refused(403, "namespace is being terminated", "evict"), None])
    assert world.drain() == ["ns/a"]


@pytest.mark.parametrize(("kind", "refused"), [("ReplicaSet", False), (None, True)])
def test_a_pod_that_came_meanwhile_goes_too_unless_it_would_be_lost(kind, refused):
    world, looks = World(pod("a")), []

    def pods_on(_name):
        looks.append(1)
        if len(looks) == 2:
            world.pods.append(pod("b", kind))
        return list(world.pods)

    world.pods_on = pods_on
    if refused:
        with pytest.raises(drain.NotDrained, match="ns/b"):
            world.drain()
    else:
        assert world.drain() == ["ns/a", "ns/b"]


def test_pods_that_end_are_waited_for_unless_the_kubelet_is_silent():
    leaving = pod("a", deletionTimestamp="2026-11-23T00:00:00Z")
    with pytest.raises(drain.NotDrained, match="still ending"):
        World(leaving).drain(timeout=5)
    world = World(leaving)
    assert world.drain(silent=True) == ["ns/a"]
    assert world.asked == []
