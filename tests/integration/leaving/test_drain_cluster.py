# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""cluster_drain against a real API server: evictions, a real PodDisruptionBudget, and who has cordoned a Node."""

import pytest

from tests.integration.controller import Controller
from tests.waiting import until

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Scene(Controller):
    """A control plane with Nodes on which no kubelet runs."""

    def __init__(self, lab, folder):
        super().__init__(lab, folder)
        self.cluster = lab.cluster()
        self.api = self.cluster.api

    def node(self, name):
        self.api.call("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        info = dict.fromkeys(
            ("systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion"), "x"
        ) | {"kubeProxyVersion": "x", "operatingSystem": "linux", "architecture": "amd64", "bootID": "boot"}
        conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": "ready"}]
        status = {"nodeInfo": {**info, "machineID": f"machine-of-{name}"}, "conditions": conditions}
        patch = "application/merge-patch+json"
        self.api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, patch)

    def pod(self, name, on, kind="ReplicaSet", app="", grace=0, **metadata):
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "1", "controller": True}
        spec = {
            "nodeName": on,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "main", "image": "example.com/image"}],
        }
        about = {"name": name, "labels": {"app": app or name}, "ownerReferences": [owner] if kind else [], **metadata}
        self.api.call("POST", PODS, {"metadata": about, "spec": spec})
        conditions = [{"type": "Ready", "status": "True"}]
        self.api.call(
            "PATCH",
            f"{PODS}/{name}/status",
            {"status": {"phase": "Running", "conditions": conditions}},
            "application/merge-patch+json",
        )

    def pods(self):
        return {one["metadata"]["name"] for one in self.api.get(PODS)["items"]}

    def budget(self, app):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        self.api.call("POST", BUDGETS, {"metadata": {"name": app}, "spec": spec})
        path = f"{BUDGETS}/{app}"
        until(lambda: self.api.get(path)["status"].get("currentHealthy") == 1, "the budget's controller")

    def run(self, module="cluster_drain", **options):
        done = self.process(module, kubeconfig=str(self.cluster.kubeconfig), **options)
        return done.results[0]["result"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    from lab.running import RunningLab

    with RunningLab(kind="dry") as lab:
        yield Scene(lab, tmp_path_factory.mktemp("drain"))


def test_drain_with_a_budget_and_uncordon(scene):
    scene.node("node-1")
    scene.pod("web", "node-1", app="web")
    scene.pod("free", "node-1")
    scene.pod("proxy", "node-1", "DaemonSet")
    scene.pod("mirror", "node-1", "Node", annotations={"kubernetes.io/config.mirror": "x"})
    scene.budget("web")
    given = {"name": "node-1", "machine_id": "machine-of-node-1"}
    assert scene.run(**given, _ansible_check_mode=True)["evicted"] == ["default/free", "default/web"]
    assert scene.pods() == {"web", "free", "proxy", "mirror"}

    failed = scene.run(**given, timeout=2)
    assert failed["failed"]
    assert "default/web: a PodDisruptionBudget does not allow it: Cannot evict pod" in failed["msg"]
    assert scene.pods() == {"web", "proxy", "mirror"}

    scene.node("node-2")
    scene.pod("web-2", "node-2", app="web")
    done = scene.run(**given, timeout=300)
    assert done["evicted"] == ["default/web"]
    assert scene.pods() == {"web-2", "proxy", "mirror"}
    assert (done["own_cordon"], scene.cluster.nodes()["node-1"]["spec"]["unschedulable"]) == (True, True)
    assert scene.run(**given)["changed"] is False

    assert scene.run(**given, state="uncordon", own_cordon=True, ready=True, boot_id="boot")["changed"]
    assert "unschedulable" not in scene.cluster.nodes()["node-1"]["spec"]


def test_whose_cordon_it_is(scene):
    scene.node("node-3")
    given = {"name": "node-3"}
    scene.cluster.kubectl("cordon", "node-3")
    assert scene.run(**given)["own_cordon"] is False
    assert scene.run(**given, state="uncordon", own_cordon=True)["unschedulable"] is True
    scene.cluster.kubectl("uncordon", "node-3")
    assert scene.run(**given)["own_cordon"] is True
    assert scene.run(**given, state="uncordon", own_cordon=True)["unschedulable"] is False
    assert not scene.cluster.nodes()["node-3"]["metadata"].get("annotations", {}).get("kubenode.provision/cordoned-by")
    assert scene.run("cluster_node", **given, machine_id="another")["changed"] is False
    assert scene.run("cluster_node", **given, machine_id="machine-of-node-3")["changed"] is True
    assert "node-3" not in scene.cluster.nodes()


def test_a_pod_that_never_ends(scene):
    scene.node("node-4")
    scene.pod("slow", "node-4", grace=30)
    failed = scene.run(name="node-4", timeout=2)
    assert "default/slow: it is still ending" in failed["msg"]
    conditions = [{"type": "Ready", "status": "Unknown", "reason": "Silent", "message": "kubelet stopped posting"}]
    patch = "application/strategic-merge-patch+json"
    scene.api.call("PATCH", "/api/v1/nodes/node-4/status", {"status": {"conditions": conditions}}, patch)
    assert not scene.run(name="node-4", timeout=60).get("failed")
