# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role writes, from variables and facts, through the filter it uses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_plan, kubelet_config
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.join_plan import join_plan
from tests.unit.node.facts import given as given_to_base
from tests.unit.node.facts import node as base_node

from ._machines import Authority, machine, seen

CA = Authority().pem
TOKEN = "abcdef.0123456789abcdef"
GIVEN = {
    "api_server": "https://192.0.2.1:6443/",
    "ca_cert": CA,
    "labels": {"example.com/rack": "r1", "a": "b"},
    "taints": ["dedicated=gpu:NoSchedule"],
    "provider_id": "hcloud://42",
    "cloud_provider": "external",
    "node_ip": "dual",
    "cluster_dns": ["10.96.0.10"],
}


def settings(given=None, node=None, token=TOKEN, **changes) -> dict[str, dict]:
    """The settings by path (the unit by its name)."""
    listed = join_plan(given or GIVEN, "settings", node=node or machine(), seen=seen(**changes), token=token)
    ids = [one["id"] for one in listed]
    assert len(set(ids)) == len(ids)
    return {one.get("path", one.get("name")): one for one in listed}


def args(made: dict) -> list[str]:
    text = made["/etc/kubernetes/kubelet.env"]["content"]
    assert text.startswith('KUBELET_ARGS="')
    assert text.endswith('"\n')
    return text[len('KUBELET_ARGS="') : -2].split(" ")


@pytest.mark.parametrize("version", ["1.34.11", "1.35.8", "1.36.4"])
def test_only_flags_of_the_minor_that_are_no_fields(version):
    made = settings(node=machine(version))
    minor = version.rpartition(".")[0]
    names = [arg.partition("=")[0][2:] for arg in args(made)]
    assert all(kubelet_config.FLAGS[minor][name] == "current" for name in names)
    # the whole line: a flag that the table does not know is left out without a word
    assert args(made) == [
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/var/lib/kubelet/config.yaml",
        "--config-dir=/etc/kubernetes/kubelet.conf.d",
        "--cert-dir=/var/lib/kubelet/pki",
        "--hostname-override=node-1",
        "--node-ip=192.0.2.7,2001:db8::7",
        "--node-labels=a=b,example.com/rack=r1",
        "--cloud-provider=external",
    ]
    config = yaml.safe_load(made["/var/lib/kubelet/config.yaml"]["content"])
    assert config["kind"] == "KubeletConfiguration"
    assert config["providerID"] == "hcloud://42"
    assert config["registerWithTaints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    assert config["clusterDNS"] == ["10.96.0.10"]
    assert config["resolvConf"] == "/run/systemd/resolve/resolv.conf"
    assert config["kubeReserved"]["memory"] == "1843Mi"


def test_a_minor_without_tables_gets_flags_for_what_it_has_no_field_for():
    extra = {"container-runtime": "remote", "container-runtime-endpoint": "unix:///run/containerd/containerd.sock"}
    made = settings({**GIVEN, "kubelet_extra_args": extra}, node=machine("1.20.2"))
    assert "--provider-id=hcloud://42" in args(made)
    assert "--register-with-taints=dedicated=gpu:NoSchedule" in args(made)
    assert "--container-runtime=remote" in args(made)
    assert not any(arg.startswith("--config-dir") for arg in args(made))
    assert "providerID" not in yaml.safe_load(made["/var/lib/kubelet/config.yaml"]["content"])
    (warning,) = join_plan(GIVEN, "check", node=machine("1.20.2"))["warnings"]
    assert "no table of fields and flags for kubelet 1.20.2" in warning


def test_the_token_is_in_the_secrets_only():
    listed = join_plan(GIVEN, "settings", node=machine(), seen=seen(), token=TOKEN)
    assert TOKEN.partition(".")[2] not in json.dumps(listed)
    (file,) = [one for one in listed if one.get("content_secret")]
    assert (file["path"], file["mode"]) == ("/etc/kubernetes/bootstrap-kubelet.conf", "0600")
    secrets = join_plan(GIVEN, "secrets", node=machine(), seen=seen(), token=TOKEN)
    written = json.loads(secrets[file["content_secret"]])
    assert written["users"][0]["user"] == {"token": TOKEN}
    assert written["clusters"][0]["cluster"]["server"] == "https://192.0.2.1:6443"


def test_a_made_token_is_used_like_a_given_one():
    given = {**GIVEN, "token_create": {"kubeconfig": "admin.conf"}}
    assert join_plan(given, "check", node=machine())["options"]["node_name"] == "node-1"
    assert settings(given)["/etc/kubernetes/bootstrap-kubelet.conf"]["content_secret"] == "bootstrap-kubeconfig"
    assert TOKEN in join_plan(given, "secrets", node=machine(), seen=seen(), token=TOKEN)["bootstrap-kubeconfig"]


KUBECONFIG = """
clusters: [{name: lab, cluster: {server: https://192.0.2.1:6443}}]
contexts: [{name: lab, context: {cluster: lab, user: me}}, {name: other, context: {cluster: lab, user: me}}]
current-context: lab
users: [{name: me, user: {}}]
"""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"ttl": "15 minutes"}, "join_token_create: ttl: '15 minutes' is no duration; write 15m, 1h30m or seconds"),
        ({"ttl": "2d"}, "join_token_create: ttl: '2d' is no duration"),
        ({"ttl": ""}, "join_token_create: ttl: '' is no duration"),
        ({"ttl": "25h"}, "join_token_create: ttl: '25h' must be from 1m to 24h"),
        ({"groups": ["mygroup"]}, "join_token_create: groups: 'mygroup' must be system:bootstrappers:NAME"),
        ({"groups": {"a": 1}}, "join_token_create: groups: {'a': 1} must be a list"),
        ({"ttl": None, "groups": None}, ""),
        ({"ttl": 900, "groups": "system:bootstrappers:a,system:bootstrappers:b"}, ""),
    ],
)
def test_a_token_that_cannot_be_made_is_refused_before_a_machine_is_asked(made, words):
    refused = join_plan({**GIVEN, "token_create": made}, "inputs", fail=False).get("refused", "")
    assert refused.startswith(words)
    assert bool(refused) is bool(words)


def test_a_ca_is_read_from_its_file(tmp_path):
    given = {**GIVEN, "ca_cert": "", "ca_file": "ca.crt"}

    def planned(**more):
        roles = str(Path(__file__).resolve().parents[3] / "roles/join")
        return join_plan({**given, **more}, "inputs", fail=False, inventory_dir=str(tmp_path), search=[roles])

    looked = planned()["refused"]
    assert looked.startswith(f"join_ca_file: there is no 'ca.crt'; looked at {tmp_path}/ca.crt, ")
    assert "roles/join" not in looked
    assert "refused" not in planned(state="absent")
    file = tmp_path / "ca.crt"
    file.write_text("")
    assert planned()["refused"] == f"join_ca_file: {file} is empty"
    file.write_bytes(b"\xff")
    assert planned()["refused"] == f"join_ca_file: {file} is no text; give a certificate in PEM"
    for text, why in (
        ("all:", "there is no certificate in PEM"),
        ("-----BEGIN PRIVATE KEY-----", "it holds a private key"),
    ):
        file.write_text(text)
        assert planned()["refused"].startswith(f"join_ca_file: {file}: {why}")
    file.write_text(CA)
    assert planned()["ca_cert"] == planned(ca_cert=CA)["ca_cert"] == CA.strip() + "\n"
    file.unlink()
    file.mkdir()
    assert planned()["refused"] == f"join_ca_file: {file} cannot be read: Is a directory"
    assert planned(ca_cert=CA)["ca_cert"]


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_kubeconfig_of_the_controller_is_looked_for_before_a_machine_is_asked(tmp_path, state):
    def refused(**made):
        given = {**GIVEN, "state": state, "token_create": made}
        return join_plan(given, "inputs", fail=False, inventory_dir=str(tmp_path)).get("refused", "")

    looked = f"join_token_create: kubeconfig: there is no 'admin.conf'; looked at {tmp_path}/admin.conf"
    for made in ({}, {"delegate_to": "localhost"}, {"delegate_to": None}):
        assert refused(kubeconfig="admin.conf", **made).startswith(looked)
    # on another host it is a path of that one; without any, the usual places are searched there
    assert refused(kubeconfig="admin.conf", delegate_to="plane-1") == refused(ttl="1h") == refused(kubeconfig="") == ""
    (tmp_path / "admin.conf").mkdir()
    assert refused(kubeconfig="admin.conf") == (
        f"join_token_create: kubeconfig: {tmp_path}/admin.conf is no file that this controller can read; correct the "
        "path, or its mode"
    )
    (tmp_path / "file.conf").write_text("hello")
    assert refused(kubeconfig="file.conf") == (
        f"join_token_create: kubeconfig: {tmp_path}/file.conf is no kubeconfig; name a file that kubectl can use"
    )
    (tmp_path / "file.conf").write_text(KUBECONFIG)
    assert refused(kubeconfig="file.conf") == refused(kubeconfig="file.conf", context="other") == ""
    assert refused(kubeconfig="file.conf", context="nope") == (
        f"join_token_create: kubeconfig: {tmp_path}/file.conf has no context 'nope'; it has lab, other"
    )
    (tmp_path / "file.conf").write_text(KUBECONFIG.replace("current-context: lab", ""))
    assert refused(kubeconfig="file.conf").endswith("has no current context; it has lab, other; name one of them")
    assert "there can be no" in refused(kubeconfig="a\0b")


def test_who_leaves_may_have_a_token_and_a_kubeconfig(tmp_path):
    (tmp_path / "admin.conf").write_text(KUBECONFIG)
    given = {**GIVEN, "token_create": {"kubeconfig": "admin.conf"}}
    assert join_plan({**given, "state": "absent"}, "inputs", token=TOKEN, inventory_dir=str(tmp_path))
    with pytest.raises(ValueError, match="join_token and join_token_create"):
        join_plan(given, "inputs", token=TOKEN, inventory_dir=str(tmp_path))


@pytest.mark.parametrize("tasks", ["present", "leave"])
def test_the_role_checks_its_variables_first(tasks):
    path = Path(__file__).resolve().parents[3] / "roles/join/tasks" / f"{tasks}.yml"
    assert yaml.safe_load(path.read_text(encoding="utf-8"))[0]["ansible.builtin.import_tasks"] == "inputs.yml"


def test_a_node_needs_no_token_and_gets_no_bootstrap_file():
    client = {"state": "valid", "server": "https://192.0.2.1:6443"}
    made = settings(token="", need_bootstrap=False, client=client)
    assert made["/etc/kubernetes/bootstrap-kubelet.conf"]["kind"] == "absent"
    assert "/etc/kubernetes/kubelet.conf" not in made
    assert made["/etc/kubenode/join.json"]["kind"] == "file"
    assert join_plan(GIVEN, "secrets", node=machine(), seen=seen(need_bootstrap=False), token=TOKEN) == {}


def test_an_api_server_that_moved_is_written_without_a_token():
    client = {"state": "valid", "server": "https://192.0.2.9:6443"}
    made = settings(token="", need_bootstrap=False, client=client)
    written = json.loads(made["/etc/kubernetes/kubelet.conf"]["content"])
    assert written["clusters"][0]["cluster"]["server"] == "https://192.0.2.1:6443"
    assert made["/etc/kubernetes/kubelet.conf"]["id"] in made["kubelet.service"]["restart_on"]


def test_no_restart_for_what_the_kubelet_does_not_read_at_its_start():
    client = {"state": "valid", "server": "https://192.0.2.1:6443"}
    made = settings({**GIVEN, "cni_config": {"cniVersion": "1.0.0"}}, token="", need_bootstrap=False, client=client)
    unread = {
        "/etc/cni/net.d/10-kubenode.conflist",
        "/etc/kubenode/join.json",
        "/etc/kubernetes/bootstrap-kubelet.conf",
    }
    assert not {made[path]["id"] for path in unread} & set(made["kubelet.service"]["restart_on"])


def test_a_certificate_that_is_refused_is_taken_away():
    made = settings(client={"state": "refused", "server": "x"})
    assert made["/var/lib/kubelet/pki/kubelet-client-current.pem"]["kind"] == "absent"
    assert made["/etc/kubernetes/kubelet.conf"]["kind"] == "absent"


@pytest.mark.parametrize(("state", "said"), [("none", "it is no node yet"), ("lapsed", "has lapsed")])
def test_no_token(state, said):
    at = {"client": {"state": state, "server": None}}
    assert re.fullmatch(
        f"join_token: the machine needs one, since .*{said}; .*", join_plan(GIVEN, "lacks", seen=seen(**at))
    )
    assert join_plan(GIVEN, "lacks", seen=seen(**at), token=TOKEN) == ""
    assert join_plan({**GIVEN, "token_create": {"ttl": "1h"}}, "lacks", seen=seen(**at)) == ""
    assert join_plan(GIVEN, "lacks", seen=seen(**at, need_bootstrap=False)) == ""


def test_undoing_takes_back_only_what_was_not_there():
    before = ["/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/pki"]
    listed = join_plan(GIVEN, "undone", seen=seen(present=before))
    paths = [one["path"] for one in listed if one["kind"] == "absent"]
    assert "/etc/kubernetes/kubelet.env" in paths
    assert "/var/lib/kubelet/pki" not in paths
    assert "/etc/kubernetes/pki/ca.crt" not in paths
    # it holds a token, whichever program wrote it
    assert "/etc/kubernetes/bootstrap-kubelet.conf" in paths
    assert (listed[0]["name"], listed[0]["state"], listed[0]["optional"]) == ("kubelet.service", "stopped", True)


def test_drop_ins():
    given = {**GIVEN, "kubelet_drop_ins": {"10-a.conf": {"maxPods": 7}, "20-b.conf": "maxPods: 9\n"}}
    made = settings(given, record={"drop_ins": ["05-old.conf", "10-a.conf", "../../evil"], "files": []})
    assert yaml.safe_load(made["/etc/kubernetes/kubelet.conf.d/10-a.conf"]["content"])["maxPods"] == 7
    assert yaml.safe_load(made["/etc/kubernetes/kubelet.conf.d/20-b.conf"]["content"])["kind"] == "KubeletConfiguration"
    assert made["/etc/kubernetes/kubelet.conf.d/05-old.conf"]["kind"] == "absent"
    assert made["/etc/kubernetes/kubelet.conf.d/10-a.conf"]["mode"] == "0600"
    assert made["/var/lib/kubelet/config.yaml"]["mode"] == "0600"
    assert "--config-dir=/etc/kubernetes/kubelet.conf.d" in args(made)
    assert not any("evil" in str(path) for path in made)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"api_server": ""}, "join_api_server: it is empty"),
        ({"api_server": "192.0.2.1:6443"}, "join_api_server: .*https://HOST:6443"),
        ({"api_server": "https://u:p@h/"}, "join_api_server"),
        ({"ca_cert": ""}, "join_ca_cert: there is no CA to trust"),
        ({"ca_cert": "x"}, "join_ca_cert: there is no certificate"),
        ({"ca_cert": Authority().client("x")}, "join_ca_cert: it holds a private key"),
        ({"labels": {"node-role.kubernetes.io/x": ""}}, "join_labels: a kubelet may not set"),
        ({"taints": ["a"]}, "join_taints: 'a' is no taint"),
        ({"node_name": "Node"}, "join_node_name: 'Node'"),
        ({"node_ip": ["192.0.2.99"]}, "join_node_ip: 192.0.2.99 is no address of this machine"),
        ({"provider_id": "42"}, "join_provider_id"),
        ({"cloud_provider": "hcloud"}, "join_cloud_provider: 'hcloud' must be one of '', 'external'"),
        ({"kubelet_config": {"maxPod": 1}}, "join_kubelet_config: maxPod: .*maxPods.* .kubelet 1.36.4"),
        ({"kubelet_drop_ins": {"a": {}}}, "join_kubelet_drop_ins: 'a' is no name"),
        ({"kubelet_drop_ins": {"a.conf": {"maxPod": 1}}}, "join_kubelet_drop_ins: a.conf: maxPod"),
        ({"kubelet_drop_ins": {"a.conf": {"kind": "Pod"}}}, "join_kubelet_drop_ins: a.conf: kind is 'Pod'"),
        ({"kubelet_drop_ins": {"a.conf": "a: ["}}, "join_kubelet_drop_ins: a.conf: not YAML"),
        ({"kubelet_extra_args": {"pod-infra-container-image": "x"}}, "knows no flag --pod-infra-container-image"),
        ({"kubelet_extra_args": {"node-ip": "x"}}, "set join_node_ip instead"),
        ({"kubelet_extra_args": {"v": "4 --evil"}}, "--v: the value"),
        ({"kubelet_extra_args": {"--hostname-overide": "x"}}, "did you mean hostname-override"),
        ({"discovery": {"ca_hashes": ["x"]}}, "join_discovery: 'x' is no pin"),
        ({"discovery": {"hashes": []}}, "join_discovery: 'hashes' is no option"),
        ({"discovery": {"jws": "maybe"}}, "join_discovery: jws: 'maybe' must be true or false"),
        ({"timeout": 1}, "join_timeout: 1 must be from 5"),
        ({"timeout": "soon"}, "join_timeout: 'soon' must be a whole number"),
        ({"token_create": {"kubeconfig": "x"}}, "join_token and join_token_create"),
        ({"reserved": {"kubelet": {}}}, "join_reserved"),
        ({"lables": {}}, "join_lables: no such variable; did you mean labels"),
        ({"config_dir": "false", "kubelet_drop_ins": {"a.conf": {}}}, "they need join_config_dir"),
    ],
)
def test_refused_before_the_cluster_is_asked(changes, said):
    with pytest.raises(ValueError, match=said) as caught:
        join_plan({**GIVEN, **changes}, "check", node=machine(), token=TOKEN)
    assert TOKEN.partition(".")[2] not in str(caught.value)


def test_a_malformed_token_is_not_repeated():
    with pytest.raises(ValueError, match="join_token: a bootstrap token is") as caught:
        join_plan(GIVEN, "check", node=machine(), token="abcdef.SECRETSECRET")
    assert "SECRET" not in str(caught.value)


def test_what_the_tables_do_not_know_may_be_allowed():
    given = {**GIVEN, "unknown_fields": "allow", "kubelet_config": {"new": 1}, "kubelet_extra_args": {"new-flag": True}}
    made = settings(given)
    assert yaml.safe_load(made["/var/lib/kubelet/config.yaml"]["content"])["new"] == 1
    assert "--new-flag=true" in args(made)


def test_a_kubelet_that_lost_cadvisors_flags_is_not_given_them():
    given = {**GIVEN, "kubelet_extra_args": {"containerd": "/run/containerd/containerd.sock"}}
    assert settings(given, node=machine("1.36.4"))
    with pytest.raises(ValueError, match="does not start with --containerd"):
        settings(given, node=machine("1.37.1"))
    assert "--containerd=/run/containerd/containerd.sock" in args(
        settings({**given, "unknown_fields": "allow"}, node=machine("1.37.1"))
    )
    kept = settings({**GIVEN, "kubelet_extra_args": {"housekeeping-interval": "30s"}}, node=machine("1.37.1"))
    assert "--housekeeping-interval=30s" in args(kept)


@pytest.mark.parametrize(
    "changes",
    [
        {"kubelet_config": {"eventRecordQPS": 0}},
        {"kubelet_drop_ins": {"a.conf": {"eventRecordQPS": 0}}},
        {"kubelet_extra_args": {"event-qps": 0}},
    ],
)
def test_events_without_a_limit_give_a_warning(changes):
    def limit_warnings(version, given):
        warnings = join_plan({**GIVEN, **given}, "check", node=machine(version))["warnings"]
        return [one for one in warnings if "eventRecordQPS is 0" in one]

    assert limit_warnings("1.37.1", changes) == [
        "eventRecordQPS is 0: kubelet 1.37.1 sends events without a limit; before 1.37, 0 meant the default, 50"
    ]
    assert limit_warnings("1.36.4", changes) == []
    assert limit_warnings("1.37.1", {"kubelet_config": {"eventRecordQPS": 5}}) == []


def test_swap_that_base_left_on_is_accepted():
    base = {**machine()["base"], "swap": "limited"}
    config = yaml.safe_load(settings(node=machine(base=base))["/var/lib/kubelet/config.yaml"]["content"])
    assert (config["failSwapOn"], config["memorySwap"]) == (False, {"swapBehavior": "LimitedSwap"})


def test_no_kubelet():
    with pytest.raises(ValueError, match="no kubelet on this machine; run the role base first"):
        join_plan(GIVEN, "check", node=machine(binaries={"kubelet": None}))


def test_the_kubelet_that_check_mode_did_not_install():
    node = machine(binaries={"kubelet": None}, assumed_kubelet="1.35.8")
    assert join_plan(GIVEN, "check", node=node)["options"]["kubelet_version"] == "1.35.8"


def test_the_kubelet_that_base_would_put_in_the_place_of_an_older_one():
    for node, version in ((machine(), "1.36.4"), (machine(expected_kubelet="1.37.2"), "1.37.2")):
        assert join_plan(GIVEN, "check", node=node)["options"]["kubelet_version"] == version
        made = settings(node=node, token="", need_bootstrap=False)
        assert json.loads(made["/etc/kubenode/join.json"]["content"])["kubelet"] == version


@pytest.mark.parametrize(("word", "meant"), [("true", True), ("on", True), ("1", True), ("Off", False), ("n", False)])
def test_values_from_the_command_line(word, meant):
    given = {**GIVEN, "timeout": "60", "ready": word, "discovery": {"jws": word}}
    inputs = join_plan(given, "inputs")
    assert (inputs["timeout"], inputs["ready"], inputs["discovery"]["jws"]) == (60, meant, meant)


def test_refused_without_an_error():
    wrong = {**GIVEN, "kubelet_config": {"maxPod": 1}}
    assert "maxPod" in join_plan(wrong, "inputs", kubelet_version="1.36.4", fail=False)["refused"]
    assert "refused" not in join_plan({**wrong, "state": "absent"}, "inputs", kubelet_version="1.36.4", fail=False)
    # base reports that this is no version
    assert "refused" not in join_plan(wrong, "inputs", kubelet_version="banana", fail=False)


def test_leaving_needs_no_cluster():
    join_plan({"state": "absent", "template_path": ["no-such-folder"]}, "inputs")  # leaving renders none
    listed = join_plan({"state": "absent"}, "absent", seen={"record": {"files": [], "drop_ins": []}})
    paths = {one["path"] for one in listed if one["kind"] == "absent"}
    assert {"/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki"} <= paths
    # it names the Node, which is deleted in between
    assert "/etc/kubenode/join.json" not in paths
    (last,) = join_plan({"state": "absent"}, "forgotten")
    assert (last["kind"], last["path"]) == ("absent", "/etc/kubenode/join.json")
    assert "/etc/cni/net.d/10-kubenode.conflist" not in paths
    # seen in the folder of a kubelet 1.36 that was stopped
    left = "dra_manager_state checkpoints image_manager device-plugins pod-resources plugins plugins_registry pods"
    assert {f"/var/lib/kubelet/{name}" for name in left.split()} <= paths
    assert all(one.get("recursive") for one in listed if one.get("path", "").endswith(("/pods", "/plugins")))
    # the folder itself may be a disk of its own
    assert "/var/lib/kubelet" not in paths


def test_the_kubelet_waits_as_long_as_base_was_given():
    def periods(**base):
        config = yaml.safe_load(
            settings(node=machine(base={"swap": "off", **base}))["/var/lib/kubelet/config.yaml"]["content"]
        )
        return config["shutdownGracePeriod"], config["shutdownGracePeriodCriticalPods"]

    assert periods() == ("60s", "20s")
    inputs = given_to_base(shutdown_grace_period="2m", shutdown_grace_period_critical="45s")
    recorded = base_plan.record(base_node("debian-13"), inputs)
    assert periods(shutdown=recorded["shutdown"]) == ("2m", "45s")
    assert "shutdown" not in base_plan.record(base_node("debian-13"), given_to_base())


def test_a_shutdown_that_base_does_not_manage_stays_as_recorded():
    inputs = given_to_base(shutdown_grace_period="90s", manage_shutdown=False)
    node, earlier = base_node("debian-13"), {"grace_period": "2m", "grace_period_critical": "45s"}
    assert "shutdown" not in base_plan.record(node, inputs)
    assert base_plan.record({**node, "base": {"shutdown": earlier}}, inputs)["shutdown"] == earlier


def test_who_leaves_takes_away_its_own_drop_ins_only():
    given = {"state": "absent", "kubelet_drop_ins": {"20-now.conf": {"maxPods": 7}}}
    listed = join_plan(given, "absent", seen={"record": {"files": [], "drop_ins": ["10-a.conf", "x/../../y"]}})
    made = {one["path"]: one for one in listed if one["kind"] == "absent"}
    folder = "/etc/kubernetes/kubelet.conf.d"
    assert [path for path in made if path.startswith(folder)] == [
        folder + "/10-a.conf", folder + "/20-now.conf", folder
    ]  # fmt: skip
    assert (made[folder].get("recursive"), made[folder]["keep_full"]) == (None, True)
