# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines join, join again, lapse and leave, against a real API server."""

import pytest
import yaml

from tests.integration.node_join.test_failures import descriptions
from tests.unit.node_join._machines import Authority
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.cluster]

CNI = {"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0"}]}
VARIABLES = {
    "labels": {"example.com/rack": "r1"},
    "taints": ["dedicated=lab:NoSchedule"],
    "provider_id": "hcloud://4242",
    "node_ip": "auto4",
    "cni_config": CNI,
    "ready": True,
}


def test_join_and_join_again(joiner):
    token = joiner.cluster.token()
    checked = joiner.run("--check", "--diff", token=token, **VARIABLES).ok()
    assert joiner.files() == set()
    assert token.partition(".")[2] not in checked.output

    done = joiner.run("--diff", "-vvv", token=token, **VARIABLES).ok()
    assert token.partition(".")[2] not in done.output
    node = joiner.cluster.nodes()[joiner.node.name]
    assert node["metadata"]["labels"]["example.com/rack"] == "r1"
    assert {"key": "dedicated", "value": "lab", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["spec"]["providerID"] == "hcloud://4242"
    assert {"type": "InternalIP", "address": joiner.node.address} in node["status"]["addresses"]
    assert done.report["waited"]["node"]["ready"] is True
    assert "/etc/kubernetes/bootstrap-kubelet.conf" not in joiner.files()
    assert token.partition(".")[2] not in joiner.node.run("journalctl --no-pager -o cat")

    pid = joiner.pid()
    again = joiner.run(**VARIABLES).ok()
    assert again.report["applied"]["changed"] is False
    assert joiner.pid() == pid
    assert "changed=0" in again.output


def test_a_pin_and_a_made_token_are_enough_and_changes_restart_the_kubelet_once(joiner):
    made = {"kubeconfig": str(joiner.cluster.kubeconfig), "description": "for the test of a join"}
    pin = {"ca_hashes": [joiner.cluster.ca_hash]}
    joiner.run(ca_cert=None, discovery=pin, token_create=made, kubelet_drop_ins={"10-a.conf": {"maxPods": 50}}).ok()
    assert joiner.node.name in joiner.cluster.nodes()
    assert made["description"] not in descriptions(joiner.cluster)
    assert joiner.node.run("cat /etc/kubernetes/pki/ca.crt") == joiner.cluster.ca_pem.strip()

    pid = joiner.pid()
    done = joiner.run(kubelet_config={"maxPods": 60}).ok()
    assert set(done.applied) == {"join/config", "join/drop-in/10-a.conf", "join/kubelet", "join/record"}
    assert joiner.pid() != pid
    assert "/etc/kubernetes/kubelet.conf.d/10-a.conf" not in joiner.files()
    assert "maxPods: 60" in joiner.node.run("cat /var/lib/kubelet/config.yaml")


def test_a_node_that_was_deleted_registers_again(joined):
    joined.cluster.kubectl("delete", "node", joined.node.name)
    done = joined.run().ok()
    assert done.report["seen"]["need_registration"] is True
    assert joined.node.name in joined.cluster.nodes()


def test_a_lapsed_certificate(joined):
    cluster, name = joined.cluster, joined.node.name
    uid = cluster.nodes()[name]["metadata"]["uid"]
    give(joined, Authority().client("system:node:" + name, days=(-3, -1)))
    done = joined.run()
    assert "join_token: the machine needs one, since its client certificate has lapsed" in done.output
    assert "/etc/kubernetes/kubelet.conf" in joined.files()  # what the earlier join made stays as it is

    done = joined.run(token=cluster.token()).ok()
    assert done.report["seen"]["client"]["state"] == "lapsed"
    assert done.report["seen"]["name"] == "own"
    assert cluster.nodes()[name]["metadata"]["uid"] == uid
    assert joined.checks([{}])[0]["client"]["state"] == "valid"


def test_a_certificate_of_no_known_cluster(joined):
    cluster, name = joined.cluster, joined.node.name
    give(joined, Authority().client("system:node:" + name))
    done = joined.run(token=cluster.token()).ok()
    assert done.report["seen"]["client"]["state"] == "refused"
    assert joined.checks([{}])[0]["client"]["state"] == "valid"


def test_a_node_of_another_cluster_is_left_alone(joined):
    name = joined.node.name
    other = Authority()
    give(joined, other.client("system:node:" + name))
    joined.node.run(f"cat > /etc/kubernetes/pki/ca.crt <<'E'\n{other.pem}E")
    before = joined.files()
    joined.run(token=joined.cluster.token()).fails_as("joined_elsewhere")
    assert joined.files() == before
    joined.clean()


def test_a_node_that_another_machine_has_registered_too(joined):
    own = joined.node.run("cat /etc/machine-id").strip()
    mine, other = joined.checks([{"machine_id": own}, {"machine_id": "f" * 32}])
    assert mine["name"] == "own"
    assert other["failure"]["code"] == "name_taken"


def test_a_kubelet_that_hangs_is_started_again(joined):
    run, pid = joined.node.run, joined.pid()
    run(f"kill -STOP {pid}")
    until(lambda: joined.pid() not in (pid, "0"), "another process", show=lambda: run("systemctl status kubelet"))
    assert "Watchdog timeout" in run("journalctl -u kubelet _PID=1 -o cat")
    until(lambda: joined.node.ssh("curl -sf http://127.0.0.1:10248/healthz").stdout == "ok", "its health")
    # it registers its Node once, and a test that deletes the Node may follow
    own = f"journalctl -u kubelet _PID={joined.pid()} -o cat"
    until(lambda: "Successfully registered node" in run(own), "its registration", show=lambda: run(own))


def test_leave(joined, tmp_path):
    given = {"state": "absent", "token_create": {"kubeconfig": str(joined.cluster.kubeconfig)}}
    # a cluster that does not answer is seen before anything is taken
    config = yaml.safe_load(joined.cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    before = joined.files()
    silent = joined.run(state="absent", token_create={"kubeconfig": str(tmp_path / "config")})
    assert silent.rc != 0
    assert "the cluster of the kubeconfig does not answer" in silent.output
    assert (joined.kubelet(), joined.files()) == ("active", before)

    joined.run("--check", **given).ok()
    assert (joined.kubelet(), joined.node.name in joined.cluster.nodes()) == ("active", True)
    joined.run(**given).ok()
    assert joined.files() == set()
    assert joined.kubelet() == "inactive"
    assert joined.node.name not in joined.cluster.nodes()
    again = joined.run(**given).ok().says("changed=0")
    assert f"the cluster has no Node {joined.node.name}" in again.output


def test_an_interrupted_leave_finds_its_node_again(joined):
    """What an interruption leaves behind: the identity is gone, the record and its Node are there."""
    joined.node.run("systemctl stop kubelet; rm -rf /etc/kubernetes /var/lib/kubelet")
    made = {"kubeconfig": str(joined.cluster.kubeconfig)}
    joined.run(state="absent", node_name="another", token_create=made).ok()
    assert joined.files() == set()
    assert joined.node.name not in joined.cluster.nodes()


def test_a_node_that_is_not_ready_has_joined(joiner):
    joiner.run(token=joiner.cluster.token(), ready=True, timeout=120).fails_as("not_ready")
    assert joiner.kubelet() == "active"
    assert "/etc/kubernetes/bootstrap-kubelet.conf" not in joiner.files()
    pid = joiner.pid()
    again = joiner.run(ready=True, cni_config=CNI).ok()
    assert again.report["waited"]["node"]["ready"] is True
    # the runtime reads CNI configurations by itself
    assert joiner.pid() == pid
    assert again.applied == ["join/cni", "join/record"]


def give(joiner, pem: str) -> None:
    """Put this certificate in the place of the kubelet's, behind a symbolic link: a kubelet replaces nothing else."""
    path = "/var/lib/kubelet/pki/kubelet-client-"
    joiner.node.run(
        f"systemctl stop kubelet && cat > {path}given.pem <<'E'\n{pem}E\n"
        f"ln -sf {path}given.pem {path}current.pem && systemctl start --no-block kubelet"
    )
