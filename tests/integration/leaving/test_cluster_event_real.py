# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""cluster_event against a real API server, seen by the real kubectl."""

import json

import pytest

from tests.integration.controller import Controller

pytestmark = pytest.mark.cluster

#: Enough of Cluster API for a Machine.
MACHINES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "machines.cluster.x-k8s.io"},
    "spec": {
        "group": "cluster.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "Machine", "plural": "machines", "singular": "machine"},
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def cluster():
    from lab.running import RunningLab

    with RunningLab(kind="dry") as lab:
        yield lab.cluster()


def test_events_are_seen_counted_and_taken_as_long_as_they_are(cluster, tmp_path):
    controller = Controller(None, tmp_path / "controller")

    def post(kind, name, **more):
        given = {"object": {"kind": kind, "name": name}, "reason": "ImageURLCommandSucceeded", "type": "Normal"}
        events = [{**given, "text": "the image command succeeded after 4.0 s", "output": ["IMAGE_URL_DONE"], **more}]
        done = controller.process("cluster_event", kubeconfig=str(cluster.kubeconfig), events=events)
        return done.results[0]["result"]

    def seen(*words):
        return json.loads(cluster.kubectl("get", "events", "-o", "json", *words))["items"]

    for count in (1, 2):
        assert [one["count"] for one in post("Node", "node-1")["events"]] == [count]
    row = cluster.kubectl("get", "events")
    print(row)
    assert "Normal" in row
    assert "ImageURLCommandSucceeded" in row
    assert "node/node-1" in row
    assert "the image command succeeded after 4.0 s: IMAGE_URL_DONE" in row
    assert [one["count"] for one in seen()] == [2]

    # it is found from the Node that comes later
    cluster.api.call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    assert "IMAGE_URL_DONE" in cluster.kubectl("describe", "node", "node-1")
    assert post("Node", "node-1", reason="ProvisioningFailed", type="Warning", output=["ä" * 3000])["changed"]
    (failed,) = seen("--field-selector=reason=ProvisioningFailed")
    assert 1020 < len(failed["message"].encode()) <= 1024

    assert "there is no ConfigMap fleet" in post("ConfigMap", "fleet")["msg"]
    cluster.kubectl("create", "configmap", "fleet")
    assert post("ConfigMap", "fleet", subject="node-1")["changed"]
    assert post("ConfigMap", "fleet", subject="node-2")["changed"]
    assert "IMAGE_URL_DONE" in cluster.kubectl("describe", "configmap", "fleet")
    assert len(seen("--field-selector=involvedObject.kind=ConfigMap")) == 2

    assert "the cluster knows no Machine" in post("Machine", "m-1")["msg"]
    cluster.kubectl("create", "-f", "-", text=json.dumps(MACHINES))
    cluster.kubectl("wait", "--for=condition=Established", "crd/machines.cluster.x-k8s.io", "--timeout=300s")
    machine = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m-1"}}
    cluster.kubectl("create", "-f", "-", text=json.dumps(machine))
    assert post("Machine", "m-1")["changed"]
    assert "IMAGE_URL_DONE" in cluster.kubectl("describe", "machine", "m-1")
