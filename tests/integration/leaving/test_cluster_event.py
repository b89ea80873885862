# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""cluster_event over HTTP: Events are added once and counted afterwards."""

import pytest

from tests.integration.controller import Controller

from .kubernetes_double import EventDouble, node


@pytest.fixture
def double(tmp_path):
    made = EventDouble(tmp_path)
    yield made
    made.close()


@pytest.fixture
def post(double, tmp_path):
    controller = Controller(None, tmp_path / "controller")

    def run(*events, **options):
        done = controller.process("cluster_event", kubeconfig=str(double.kubeconfig), events=list(events), **options)
        assert "secret-of-the-kubeconfig" not in done.output
        return done.results[0]["result"]

    return run


def event(kind="Node", name="node-1", **more):
    about = {"kind": kind, "name": name, **({"namespace": more.pop("namespace")} if "namespace" in more else {})}
    given = {"reason": "ImageURLCommandSucceeded", "text": "it succeeded", "output": ["one", "IMAGE_URL_DONE"]}
    return {"object": about, **given, **more}


def test_the_same_again_is_counted_and_not_added(double, post):
    double.add(node("node-1"))
    predicted = post(event(), _ansible_check_mode=True, _ansible_diff=True)
    assert predicted["changed"]
    assert double.events == {}
    (key,) = predicted["diff"]["after"]
    done = post(event())
    assert (done["changed"], done["events"][0]["count"]) == (True, 1)
    ((place, found),) = double.events.items()
    assert "/".join(place) == key
    assert found["message"] == "it succeeded: one | IMAGE_URL_DONE"
    assert found["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-of-node-1"}
    assert (found["reason"], found["type"], found["count"]) == ("ImageURLCommandSucceeded", "Normal", 1)
    assert found["source"]["component"] == "kubenode.provision"
    first = dict(found)

    again = post(event(output=["two"]))
    assert again["events"][0]["count"] == 2
    ((_place, found),) = double.events.items()
    assert (found["count"], found["message"]) == (2, "it succeeded: two")
    assert found["firstTimestamp"] == first["firstTimestamp"] <= found["lastTimestamp"]
    assert post(event(), _ansible_check_mode=True)["events"][0]["count"] == 3
    assert next(iter(double.events.values()))["count"] == 2


def test_many_machines_on_one_object_and_a_machine_of_cluster_api(double, post):
    double.objects = {"namespaces/x/configmaps/fleet": "u1", "namespaces/y/machines/m": "u2"}
    fleet = [event("ConfigMap", "fleet", namespace="x", subject=f"n{number}") for number in range(3)]
    done = post(*fleet, *fleet, event("Machine", "m", namespace="y"))
    assert [one["count"] for one in done["events"]] == [1, 1, 1, 2, 2, 2, 1]
    abouts = {(one["involvedObject"]["apiVersion"], one["involvedObject"]["uid"]) for one in double.events.values()}
    assert abouts == {("v1", "u1"), ("cluster.x-k8s.io/v1beta2", "u2")}
    assert len(double.events) == 4


def test_a_node_may_come_later_and_others_must_be_there(double, post):
    assert post(event())["changed"]
    assert next(iter(double.events.values()))["involvedObject"]["uid"] == "node-1"
    failed = post(event("ConfigMap", "none"), event("Machine", "m"), event())
    assert failed["failed"]
    assert failed["changed"]
    assert "2 of 3 Events could not be posted: there is no ConfigMap none in the namespace default" in failed["msg"]
    assert "the cluster knows no Machine (cluster.x-k8s.io)" in failed["msg"]
    assert failed["events"][2]["count"] == 2


def test_trouble_is_a_warning_when_it_is_only_to_be_reported(double, post):
    double.forbidden = True
    done = post(event(), on_error="report")
    assert not done.get("failed")
    assert not done["changed"]
    assert "events is forbidden: no luck" in str(done["warnings"])
    assert post(event())["failed"]
    double.close()
    done = post(event(), event(name="b"), on_error="report")
    assert "2 of 2 Events could not be posted: the cluster of the kubeconfig does not answer" in str(done["warnings"])
    assert [one["failed"] for one in done["events"]] == [True, True]
