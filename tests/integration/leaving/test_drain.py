# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""cluster_drain and cluster_node over HTTP: what is evicted, what stays, and what is said of the rest."""

import signal

import pytest

from tests.integration.controller import Controller

from .kubernetes_double import node, pod

EMPTY_DIR = [{"name": "cache", "emptyDir": {}}]


@pytest.fixture
def controller(tmp_path):
    controller = Controller(None, tmp_path / "controller")
    yield controller
    controller.stop()


@pytest.fixture
def drain(api, controller):
    def run(module="cluster_drain", **options):
        given = {"kubeconfig": str(api.kubeconfig), "name": "node-1", **options}
        done = controller.process(module, **given)
        assert "secret-of-the-kubeconfig" not in done.output
        return done.results[0]["result"]

    return run


def evictions(api):
    return [path.split("/")[-2] for method, path, _body in api.writes if path.endswith("/eviction")]


def test_pods_go_but_for_those_of_daemon_sets_and_mirrors(api, drain):
    api.add(
        node("node-1", "m1"),
        node("node-2", "m2"),
        pod("web", "node-1"),
        pod("job", "node-1", "Job", phase="Succeeded"),
        pod("proxy", "node-1", "DaemonSet"),
        pod("etcd", "node-1", "Node", annotations={"kubernetes.io/config.mirror": "x"}),
        pod("elsewhere", "node-2"),
    )
    checked = drain(machine_id="m1", _ansible_check_mode=True, _ansible_diff=True)
    assert (checked["changed"], checked["evicted"]) == (True, ["default/job", "default/web"])
    assert checked["diff"] == {"before": {"unschedulable": False}, "after": {"unschedulable": True}}
    assert api.writes == []

    done = drain(machine_id="m1")
    assert (done["changed"], done["evicted"]) == (True, ["default/job", "default/web"])
    assert (done["unschedulable"], done["own_cordon"]) == (True, True)
    assert {one["pod"] for one in done["stayed"]} == {"default/proxy", "default/etcd"}
    assert set(api.pods) == {"proxy", "etcd", "elsewhere"}
    assert "unschedulable" not in api.nodes["node-2"]["spec"]

    again = drain(machine_id="m1")
    assert (again["changed"], again["evicted"], again["own_cordon"]) == (False, [], True)
    assert len(api.writes) == 3


@pytest.mark.parametrize(
    ("in_the_way", "option"),
    [
        (pod("bare", "node-1", None), "force"),
        (pod("cache", "node-1", volumes=EMPTY_DIR), "delete_emptydir_data"),
    ],
)
def test_what_would_be_lost_is_refused_before_anything_is_changed(api, drain, in_the_way, option):
    api.add(node("node-1"), pod("web", "node-1"), in_the_way)
    refused = drain()
    assert refused["failed"]
    assert refused["failure"]["code"] == "pods_refused"
    assert f"default/{in_the_way['metadata']['name']}" in refused["msg"]
    assert option in refused["msg"]
    assert api.writes == []
    assert drain(**{option: True})["changed"]
    assert api.pods == {}


@pytest.mark.parametrize("eviction", ["policy/v1", "policy/v1beta1"])
def test_a_budget_is_waited_for(api, drain, eviction):
    api.eviction = eviction
    api.add(node("node-1"), pod("web", "node-1"), pod("free", "node-1"))
    api.budgets["web"] = 0

    def meanwhile(_method, _path):
        # a pod elsewhere becomes ready after the second refusal
        api.budgets["web"] = int(evictions(api).count("web") >= 2)

    api.meanwhile = meanwhile
    done = drain(timeout=120)
    assert done["evicted"] == ["default/free", "default/web"]
    assert evictions(api).count("web") == 3
    assert evictions(api).count("free") == 1


def test_a_budget_that_never_allows_it_ends_with_its_words(api, drain):
    api.add(node("node-1"), pod("web", "node-1"), pod("free", "node-1"))
    api.budgets["web"] = 0
    failed = drain(timeout=8)
    assert failed["failed"]
    assert failed["failure"]["code"] == "not_drained"
    assert "default/web: a PodDisruptionBudget does not allow it" in failed["msg"]
    assert "The disruption budget web needs 1 healthy pods" in failed["msg"]
    assert "kubectl uncordon node-1" in failed["msg"]
    assert (failed["evicted"], set(api.pods)) == (["default/free"], {"web"})
    assert api.nodes["node-1"]["spec"]["unschedulable"] is True
    api.budgets["web"] = 1
    assert drain(timeout=60)["evicted"] == ["default/web"]


def test_a_pod_that_does_not_end(api, drain):
    api.add(node("node-1"), pod("web", "node-1"))
    api.stuck.add("web")
    failed = drain(timeout=8)
    assert "default/web: it is still ending" in failed["msg"]
    assert evictions(api) == ["web"]
    # on a machine that is gone it ends by the Node's removal
    api.nodes["node-1"]["status"]["conditions"][0]["status"] = "Unknown"
    assert not drain(timeout=60).get("failed")


def test_an_api_server_that_comes_back_is_waited_for(api, drain):
    api.add(node("node-1"), pod("web", "node-1"))

    def meanwhile(_method, path):
        if path.endswith("/eviction") and not api.writes[1:]:
            api.faults, api.meanwhile = 3, lambda _method, _path: None

    api.meanwhile = meanwhile
    assert drain(timeout=120)["evicted"] == ["default/web"]
    assert api.pods == {}


def test_a_run_that_was_killed_evicts_no_more(api, controller):
    """Who kills a run, perhaps to stop the drain, need not look for a module that lives on."""
    api.add(node("node-1"), pod("web", "node-1"))
    api.budgets["web"] = 0
    options = {"kubeconfig": str(api.kubeconfig), "name": "node-1", "timeout": 3600}
    run = controller.start_module("localhost", "cluster_drain", **options)
    run.until(lambda: evictions(api), "the first eviction")
    run.interrupt(signal.SIGKILL)
    controller.end_of_all()
    assert set(api.pods) == {"web"}


def test_rights_that_are_missing_end_it_at_once(api, drain):
    api.add(node("node-1"), pod("web", "node-1"))
    api._evict = lambda _name, _body: (403, {"kind": "Status", "message": 'pods "web" is forbidden: no\x1b[31m'})
    failed = drain(timeout=3600)
    assert "it needs create on pods/eviction" in failed["msg"]
    assert "\x1b" not in failed["msg"]


@pytest.mark.parametrize(
    ("given", "mine"),
    [
        ({"machine_id": "m1"}, True),
        ({"machine_id": "other"}, False),
        ({"provider_id": "hcloud://1"}, True),
        ({"provider_id": "hcloud://2", "addresses": ["192.0.2.1"]}, False),
        ({"addresses": ["192.0.2.9"]}, False),
        ({}, True),
    ],
)
def test_only_the_machines_own_node_is_touched(api, drain, given, mine):
    own = node("node-1", "m1", addresses=["192.0.2.1"])
    own["spec"]["providerID"] = "hcloud://1"
    api.add(own, pod("web", "node-1"))
    for module in ("cluster_drain", "cluster_node"):
        done = drain(module, **given)
        assert (done["changed"], done["own"], done["existed"]) == (mine, mine, True)
    assert ("node-1" in api.nodes, "web" in api.pods) == (not mine, not mine)


def test_a_node_without_provider_id_is_known_by_an_address(api, drain):
    api.add(node("node-1", "m1", addresses=["192.0.2.1"]))
    assert drain("cluster_node", provider_id="hcloud://1", addresses=["192.0.2.1"])["changed"]


def test_a_node_that_took_the_name_meanwhile_is_left(api, drain):
    api.add(node("node-1", "m1"))

    def meanwhile(method, _path):
        if method != "GET":
            api.nodes["node-1"]["metadata"]["uid"] = "another"

    api.meanwhile = meanwhile
    for module in ("cluster_drain", "cluster_node"):
        api.nodes["node-1"]["metadata"]["uid"] = "seen"
        assert "409" in drain(module, machine_id="m1")["msg"]
    assert "unschedulable" not in api.nodes["node-1"]["spec"]


def test_only_an_own_cordon_is_taken_back(api, drain):
    api.add(node("node-1"))
    api.cordon("node-1", "kubectl")
    assert drain("cluster_drain", state="cordon")["changed"] is False
    kept = drain(state="uncordon", own_cordon=True)
    assert (kept["changed"], kept["unschedulable"], kept["own_cordon"], kept["cordoned_by"]) == (False, True, False, "")
    assert drain(state="uncordon")["changed"] is True
    assert drain(state="cordon", field_manager="ours")["own_cordon"] is True
    kept = drain(state="uncordon", own_cordon=True, field_manager="another")
    assert (kept["changed"], kept["own_cordon"], kept["cordoned_by"]) == (False, False, "ours")
    done = drain(state="uncordon", own_cordon=True, field_manager="ours")
    assert (done["changed"], done["unschedulable"]) == (True, False)
    assert drain(state="uncordon")["changed"] is False
    # a person takes it back and cordons it later: it is the person's cordon, also with our annotation
    assert drain(state="cordon", field_manager="ours")["own_cordon"] is True
    api.cordon("node-1", "kubectl", on=False)
    api.cordon("node-1", "kubectl")
    assert drain(state="uncordon", own_cordon=True, field_manager="ours")["changed"] is False


def test_ready_counts_only_of_this_boot(api, drain):
    api.add(node("node-1", boot_id="before"))
    assert drain(state="cordon")["changed"]
    failed = drain(state="uncordon", ready=True, boot_id="after", timeout=1)
    assert failed["failure"]["code"] == "not_ready"
    assert "has not reported this boot yet" in failed["msg"]
    assert api.nodes["node-1"]["spec"]["unschedulable"] is True

    looks = []

    def meanwhile(_method, _path):
        looks.append(1)
        api.nodes["node-1"]["status"]["nodeInfo"]["bootID"] = "after" if len(looks) > 2 else "before"

    api.meanwhile = meanwhile
    assert drain(state="uncordon", ready=True, boot_id="after", timeout=60)["unschedulable"] is False


def test_what_cannot_work_is_said(api, drain, tmp_path):
    assert drain(name="node-9")["existed"] is False
    assert "timeout: 0" in drain(timeout=0)["msg"]
    assert "cannot be used" in drain(kubeconfig=str(tmp_path / "none"))["msg"]
    api.close()
    assert drain()["failure"]["code"] == "api_unreachable"


@pytest.mark.parametrize("module", ["cluster_drain", "cluster_node"])
def test_the_node_of_a_qualified_name_may_have_the_short_one(api, drain, module):
    """Most systems take the first part as their hostname. Another machine's Node may have this name, too."""
    api.add(node("node-1", "m1", addresses=["192.0.2.1"]))
    qualified = {"module": module, "name": "node-1.k8s.example.com"}
    for options in ({}, {"machine_id": "m2"}, {"addresses": ["192.0.2.2"]}):
        found = drain(**qualified, **options)
        assert (found["existed"], found["own"], found["changed"]) == (False, False, False)
        assert found["name"] == "node-1.k8s.example.com"
    done = drain(**qualified, addresses=["192.0.2.1"])
    assert (done["changed"], done["name"]) == (True, "node-1")
    api.add(node("node-1", "m1"), node("node-1.k8s.example.com", "m1"))
    assert drain(**qualified, machine_id="m1")["name"] == "node-1.k8s.example.com"
