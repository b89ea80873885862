# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each way a join can fail: its code, within its time, and nothing left on the machine."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from lab.cluster.running_cluster import RunningCluster
from lab.running import RunningLab
from tests.unit.node_join._machines import Authority
from tests.web_servers import Handler, Server

pytestmark = [pytest.mark.nspawn, pytest.mark.cluster]

PIN = "sha256:" + "0" * 64


def nothing_left(joiner) -> None:
    """The end state after every failure: no file of a join, no kubelet, no Node."""
    assert joiner.files() == set()
    assert joiner.kubelet() in ("inactive", "failed")
    assert joiner.node.name not in joiner.cluster.nodes()


def test_what_the_check_refuses(joiner, lab_nspawn: RunningLab, late_server):
    cluster: RunningCluster = joiner.cluster
    good = cluster.token()
    wrong = good[:7] + "0" * 16  # known to the cluster, but the secret does not fit
    unused = lab_nspawn.controller.rpartition(".")[0] + ".253"
    late, late_ca = late_server
    cluster.bootstrap(False)
    cases = {
        "ca_mismatch": {"ca_cert": Authority("other").pem},
        "pin_mismatch": {"ca_cert": None, "ca_hashes": [PIN]},
        "pin_mismatch beside a CA": {"ca_hashes": [PIN]},
        "discovery_signature": {"ca_cert": None, "jws": True, "token": wrong},
        "discovery_signature of an expired token": {"jws": True, "token": cluster.token(ttl=0)},
        "token_refused": {"token": wrong},
        "token_refused, expired": {"token": cluster.token(ttl=0)},
        "token_refused, unknown": {"token": "zzzzzz.0123456789abcdef"},
        "csr_forbidden": {"token": good},
        "api_unreachable": {"api_server": f"https://{unused}:6443", "timeout": 3},
        "api_unreachable, no such name": {"api_server": "https://nowhere.invalid:6443", "timeout": 3},
        "clock_skew": {"api_server": late, "ca_cert": late_ca},
        "version_skew": {"kubelet_version": "1.99.0"},
    }
    results = joiner.checks(list(cases.values()))
    assert [one.get("failure", {}).get("code") for one in results] == [
        name.split(",")[0].split(" ")[0] for name in cases
    ]
    assert all(one["failed"] and one["msg"] for one in results)
    reported = json.dumps([{**one, "invocation": None, "item": None} for one in results])
    assert good[7:] not in reported
    nothing_left(joiner)


def test_a_signature_by_the_token_proves_the_cluster(joiner):
    token = joiner.cluster.token()
    pins = [joiner.cluster.ca_hash]
    results = joiner.checks(
        [
            {"ca_cert": None, "jws": True, "token": token},
            {"ca_cert": None, "jws": True, "token": token, "ca_hashes": pins},
        ]
    )
    for one in results:
        assert not one["failed"], one
        assert (one["ca_hashes"], one["token"], one["name"]) == (pins, "accepted", "free")
        assert one["need_bootstrap"] is True


def test_label_that_a_kubelet_may_not_set(joiner):
    done = joiner.run(token=joiner.cluster.token(), labels={"node-role.kubernetes.io/worker": ""})
    assert "join_labels: a kubelet may not set the label" in done.output
    assert done.report["seen"] == {}
    nothing_left(joiner)


def test_no_controller_approves(joiner):
    joiner.cluster.approve(False)
    made = {"kubeconfig": str(joiner.cluster.kubeconfig), "description": "for the test of a failure"}
    joiner.run(token_create=made, timeout=40).fails_as("csr_pending", "nothing approves it", "csr-")
    assert made["description"] not in descriptions(joiner.cluster)
    nothing_left(joiner)


def test_an_administrator_denies(joiner):
    cluster: RunningCluster = joiner.cluster
    cluster.approve(False)
    known = {request["metadata"]["name"] for request in cluster.requests()}
    stop = threading.Event()

    def deny() -> None:
        while not stop.wait(0.2):
            for request in cluster.requests():
                if request["metadata"]["name"] not in known:
                    cluster.kubectl("certificate", "deny", request["metadata"]["name"])

    thread = threading.Thread(target=deny)
    thread.start()
    try:
        done = joiner.run(token=cluster.token(), timeout=400)
    finally:
        stop.set()
        thread.join()
    done.fails_as("csr_denied")
    nothing_left(joiner)


def test_name_of_another_machine(joiner):
    other = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": joiner.node.name},
        "spec": {"providerID": "other://1"},
    }
    joiner.cluster.kubectl("create", "-f", "-", text=json.dumps(other))
    (seen,) = joiner.checks([{"token": joiner.cluster.token()}])
    assert seen["failure"]["code"] == "name_taken", seen
    # a machine without a token cannot see that; the maker of the token can
    joiner.run(token_create={"kubeconfig": str(joiner.cluster.kubeconfig)}).fails_as("name_taken")
    assert joiner.files() == set()
    assert joiner.kubelet() == "inactive"
    assert joiner.cluster.nodes()[joiner.node.name]["spec"]["providerID"] == "other://1"


@pytest.fixture
def late_server(lab_nspawn: RunningLab, tmp_path) -> Iterator[tuple[str, str]]:
    """(address, CA) of a server whose clock is ten minutes ahead."""

    class Answer(Handler):
        def date_time_string(self, timestamp=None):
            return formatdate(time.time() + 600, usegmt=True)

        def do_GET(self):
            self.reply(200, b'{"gitVersion": "v1.36.0"}')

    authority, address = Authority(), lab_nspawn.controller
    (tmp_path / "server.pem").write_text(authority.server(address))
    with Server(Answer, address, certificate=(tmp_path / "server.pem", tmp_path / "server.pem")) as server:
        yield server.url, authority.pem


def test_kubelet_that_exits(joiner):
    given = {"unknown_fields": "allow", "kubelet_extra_args": {"pod-infra-container-image": "pause"}}
    done = joiner.run(token=joiner.cluster.token(), **given)
    done.fails_as("kubelet_exited", "unknown flag: --pod-infra-container-image")
    nothing_left(joiner)


def descriptions(cluster: RunningCluster) -> set[str]:
    """What the cluster's bootstrap tokens say they are for."""
    listed = json.loads(
        cluster.kubectl(
            "-n", "kube-system", "get", "secrets", "--field-selector=type=bootstrap.kubernetes.io/token", "-o", "json"
        )
    )
    return {base64.b64decode(one["data"].get("description", "")).decode() for one in listed["items"]}
