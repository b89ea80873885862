# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kubeadm is given, and what is made of its words. Fields are those of kubeadm.k8s.io/v1beta4, words of 1.36.2."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import check, codes
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.codes import JoinFailure
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.join_plan import join_plan

from ._machines import Authority, machine, seen
from .test_discovery import OURS, cluster_info

TOKEN = "abcdef.0123456789abcdef"
GIVEN = {
    "api_server": "https://[2001:db8::1]:6443",
    "ca_cert": Authority().pem,
    "method": "kubeadm",
    "labels": {"example.com/rack": "r1"},
    "taints": ["dedicated=gpu:NoSchedule"],
    "kubelet_config": {"maxPods": 50, "serverTLSBootstrap": None},
    "kubelet_extra_args": {"v": 4},
    "timeout": 90,
}


def test_configuration_of_kubeadm():
    secrets = join_plan(GIVEN, "secrets", node=machine(), seen=seen(), token=TOKEN)
    assert yaml.safe_load(secrets["kubeadm-join"]) == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": "[2001:db8::1]:6443",
                "token": TOKEN,
                "caCertHashes": ["sha256:" + "0" * 64],
            }
        },
        "nodeRegistration": {
            "name": "node-1",
            "criSocket": "unix:///run/containerd/containerd.sock",
            "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
            "kubeletExtraArgs": [{"name": "node-labels", "value": "example.com/rack=r1"}, {"name": "v", "value": "4"}],
        },
        "patches": {"directory": "/etc/kubernetes/kubenode-patches"},
        "timeouts": {"discovery": "1m30s", "kubeletHealthCheck": "1m30s", "tlsBootstrap": "1m30s"},
    }


def test_files_of_kubeadm():
    listed = join_plan(GIVEN, "settings", node=machine(), seen=seen(), token=TOKEN)
    files = {one["path"]: one for one in listed if one["kind"] == "file"}
    assert set(files) == {
        "/etc/kubernetes/kubenode-patches/kubeletconfiguration+merge.yaml",
        "/etc/kubernetes/kubelet.env",
        "/run/kubenode/kubeadm-join.yaml",
    }
    # kubeadm starts the kubelet itself; its preflight refuses one that runs, and what it will write itself
    (unit,) = [one for one in listed if one["kind"] == "unit"]
    assert (unit["state"], unit["optional"]) == ("stopped", True)
    before = listed[: listed.index(next(one for one in listed if one["kind"] == "file"))]
    assert unit in before
    assert {one["path"] for one in before if one["kind"] == "absent"} == {
        "/etc/kubernetes/pki/ca.crt",
        "/etc/kubernetes/bootstrap-kubelet.conf",
        "/etc/kubernetes/kubelet.conf",
        "/var/lib/kubelet/pki/kubelet-client-current.pem",
    }
    assert (files["/run/kubenode/kubeadm-join.yaml"]["mode"], TOKEN in str(listed)) == ("0600", False)
    patch = yaml.safe_load(files["/etc/kubernetes/kubenode-patches/kubeletconfiguration+merge.yaml"]["content"])
    assert patch["maxPods"] == 50
    assert patch["serverTLSBootstrap"] is None  # a merge patch takes a field away by null
    assert "authentication" not in patch  # the cluster's own kubelet-config says so
    assert "--kubeconfig=/etc/kubernetes/kubelet.conf" in files["/etc/kubernetes/kubelet.env"]["content"]


def test_a_node_of_kubeadm_is_left_alone():
    client = {"state": "valid", "server": GIVEN["api_server"]}
    listed = join_plan(GIVEN, "settings", node=machine(), seen=seen(need_bootstrap=False, client=client))
    assert [one["path"] for one in listed if one["kind"] == "file"] == [
        "/etc/kubernetes/pki/ca.crt",
        "/etc/kubenode/join.json",
    ]


def test_kubeadm_is_too_old():
    with pytest.raises(ValueError, match=r"kubeadm needs Kubernetes 1.31 or newer"):
        join_plan(GIVEN, "settings", node=machine("1.30.1"), seen=seen(), token=TOKEN)


@pytest.mark.parametrize(
    ("binaries", "base", "path"),
    [
        ({"kubeadm": {"path": "/usr/bin/kubeadm"}}, {}, "/usr/bin/kubeadm"),
        ({"/opt/bin/kubeadm": {"path": "/opt/bin/kubeadm"}}, {"bin_dir": "/opt/bin"}, "/opt/bin/kubeadm"),
        (
            {name: {"path": name} for name in ("/usr/bin/kubeadm", "/usr/local/bin/kubeadm")},
            {"bin_dir": "/usr/local/bin"},
            "/usr/local/bin/kubeadm",
        ),
    ],
)
def test_kubeadm_is_called_by_its_path(binaries, base, path):
    """Under sudo, neither /usr/local/bin nor /opt/bin need be in PATH."""
    node = machine()
    node = {**node, "binaries": {**node["binaries"], **binaries}, "base": base}
    checked = join_plan(GIVEN, "check", node=node)
    assert checked["kubeadm"] == {"path": path, "kubelet": node["binaries"]["/usr/local/bin/kubelet"]["path"]}


def test_a_machine_without_kubeadm_is_refused_before_anything():
    for given in (GIVEN, {**GIVEN, "method": "bootstrap"}):
        refused = join_plan(given, "check", node=machine(), fail=False).get("refused", "")
        assert refused.startswith("join_method: there is no kubeadm on this machine") is (given is GIVEN)
    assumed = {**machine(), "binaries": {}, "assumed_kubelet": "1.36.4"}
    assert join_plan(GIVEN, "check", node=assumed)["kubeadm"]["path"] == "kubeadm"


@pytest.mark.parametrize(
    ("method", "usages", "expected"),
    [
        ("kubeadm", None, ["authentication", "signing"]),
        ("kubeadm", ["signing", "authentication"], ["signing", "authentication"]),
        ("kubeadm", ["authentication"], "join_token_create: usages: kubeadm needs signing, too"),
        ("bootstrap", None, ["authentication"]),
        ("bootstrap", ["signing"], "join_token_create: usages: a machine cannot join without authentication"),
        ("bootstrap", "signing", "join_token_create: usages: 'signing' must be a list"),
    ],
)
def test_what_a_token_that_is_made_may_be_used_for(method, usages, expected):
    """kubeadm proves the cluster by a signature with the token; without it, it waits for five minutes."""
    made = {"kubeconfig": "admin.conf", "delegate_to": "plane-1", **({"usages": usages} if usages else {})}
    inputs = join_plan({**GIVEN, "method": method, "token_create": made}, "inputs", fail=False)
    assert inputs.get("refused", "").startswith(expected) if isinstance(expected, str) else (
        inputs["token_create"]["usages"] == expected
    )  # fmt: skip
    assert join_plan({**GIVEN, "method": method}, "inputs")["token_create"] == {}


def test_a_token_of_the_user_must_have_signed():
    node = {**machine(), "binaries": {**machine()["binaries"], "kubeadm": {"path": "/usr/bin/kubeadm"}}}
    for given, token, signs in (
        (GIVEN, TOKEN, True),
        (GIVEN, "", False),
        ({**GIVEN, "method": "bootstrap"}, TOKEN, False),
    ):
        assert join_plan(given, "check", node=node, token=token)["options"]["signing"] is signs


PREFLIGHT = """\
W1125 03:12:44.114513    1412 checks.go:1080] [preflight] WARNING: something of no account
\t[WARNING Hostname]: hostname "node-1" could not be reached
[preflight] Some fatal errors occurred:
\t[ERROR FileAvailable--etc-kubernetes-pki-ca.crt]: /etc/kubernetes/pki/ca.crt already exists
\t[ERROR SystemVerification]: unexpected kernel config: CONFIG_CGROUP_PIDS
unexpected kernel config: CONFIG_BPF
\t[ERROR Port-10250]: Port 10250 is in use
[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`
error: error execution phase preflight: preflight checks failed
To see the stack trace of this error execute with --v=5 or higher
"""
SIGNATURE = """\
error: error execution phase preflight: couldn't validate the identity of the API Server: could not find \
a JWS signature in the cluster-info ConfigMap for token ID "abcdef"
To see the stack trace of this error execute with --v=5 or higher
"""
LATE = """\
[preflight] Some fatal errors occurred:
\t[ERROR CRI]: could not connect to the container runtime: failed to create new CRI runtime service: validate service \
connection: validate CRI v1 runtime API for endpoint "unix:///run/containerd/containerd.sock": rpc error: \
code = DeadlineExceeded desc = context deadline exceeded
[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`
error: error execution phase preflight: preflight checks failed
To see the stack trace of this error execute with --v=5 or higher
"""
KUBELET = """\
error: error execution phase kubelet-wait-bootstrap: failed while waiting for the kubelet to start: The HTTP call \
equal to 'curl -sSL http://127.0.0.1:10248/healthz' returned error: context deadline exceeded
To see the stack trace of this error execute with --v=5 or higher
"""


@pytest.mark.parametrize(
    ("errors", "phase", "code", "words"),
    [
        (
            PREFLIGHT,
            "preflight",
            "kubeadm_failed",
            "its checks: FileAvailable--etc-kubernetes-pki-ca.crt: /etc/kubernetes/pki/ca.crt already exists; "
            "SystemVerification: unexpected kernel config: CONFIG_CGROUP_PIDS unexpected kernel config: CONFIG_BPF; "
            "Port-10250: Port 10250 is in use",
        ),
        # as it was up to 1.35
        (PREFLIGHT.replace("error: error", "error"), "preflight", "kubeadm_failed", "its checks: FileAvailable"),
        (
            SIGNATURE,
            "preflight",
            "discovery_signature",
            "preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the "
            'cluster-info ConfigMap for token ID "abcdef"',
        ),
        (KUBELET, "kubelet-wait-bootstrap", "kubeadm_failed", "kubelet-wait-bootstrap: failed while waiting for"),
        (
            "error: unknown flag: --config\nTo see the stack trace of this error",
            "",
            "kubeadm_failed",
            "unknown flag: --config",
        ),
        ("/usr/bin/kubeadm: 1: Syntax error\n\n", "", "kubeadm_failed", "/usr/bin/kubeadm: 1: Syntax error"),
        ("", "", "kubeadm_failed", "it ended with the exit code 3 and said nothing"),
    ],
)
def test_why_kubeadm_failed(errors, phase, code, words):
    found = codes.failure(3, errors)
    assert (found.phase, found.code) == (phase, code)
    assert found.detail.startswith(words)
    assert "\n" not in found.detail
    assert "stack trace" not in found.detail


def test_where_the_kubelet_itself_is_to_be_asked():
    assert codes.failure(1, KUBELET).of_kubelet
    taken = 'error: error execution phase kubelet-start: a Node with name "a" and status "Ready" already exists\n'
    assert not codes.failure(1, taken).of_kubelet
    assert not codes.failure(1, PREFLIGHT).of_kubelet


_OTHER = "[preflight] If"


@pytest.mark.parametrize(
    ("errors", "late"),
    [
        (LATE, True),
        (LATE.replace(_OTHER, "\t[ERROR ContainerRuntimeVersion]: context deadline exceeded\n" + _OTHER), True),
        # something else is wrong, too, or the runtime is
        (LATE.replace(_OTHER, "\t[ERROR Port-10250]: Port 10250 is in use\n" + _OTHER), False),
        (LATE.replace("code = DeadlineExceeded desc = context deadline exceeded", "code = Unimplemented"), False),
        (PREFLIGHT, False),
        (KUBELET, False),
        (SIGNATURE, False),
    ],
)
def test_a_runtime_that_is_only_slow(errors, late):
    assert codes.failure(1, errors).runtime_late is late


class Server:
    """An API server whose cluster-info is signed with the token, or not."""

    signed, asked = True, 0

    def __init__(self, *_where, **_how):
        """Any way in is right."""

    def get(self, path):
        body = {"gitVersion": "v1.36.2"}
        if path.endswith("/cluster-info"):
            Server.asked += 1
            body = cluster_info()
            if not self.signed:
                del body["data"]["jws-kubeconfig-abcdef"]
        return SimpleNamespace(status=404 if "/nodes/" in path else 200, body=body, skew=0.0, message="")

    def post(self, _path, _body):
        return SimpleNamespace(status=201, body={"status": {"allowed": True}}, skew=0.0, message="")


def looking(monkeypatch, folder, signed, **given):
    """A check of a machine of this folder, whose API server signed cluster-info or not."""
    monkeypatch.setattr(check, "Api", Server)
    monkeypatch.setattr(check, "_AGAIN", 0.0)
    monkeypatch.setattr(Server, "signed", signed)
    monkeypatch.setattr(Server, "asked", 0)
    options = {
        "api_server": "https://192.0.2.1:6443", "ca_cert": OURS.pem, "ca_hashes": [], "jws": False, "signing": False,
        "token": TOKEN, "node_name": "node-1", "machine_id": "m", "kubelet_version": "1.36.4", "check_name": True,
        "version_check": "refuse", "max_clock_skew": 30, "timeout": 30,
    }  # fmt: skip
    return check.Check({**options, **given}, Host(str(folder)))


@pytest.mark.parametrize("signed", [True, False])
def test_a_signature_is_looked_at_beside_a_ca(monkeypatch, tmp_path, signed):
    look = looking(monkeypatch, tmp_path, signed, jws=True)
    if signed:
        assert look.run()["ca_cert"] == OURS.pem
        return
    with pytest.raises(JoinFailure) as failed:
        look.run()
    assert failed.value.code == "discovery_signature"


@pytest.mark.parametrize(("signs", "signed"), [(True, True), (True, False), (False, False)])
def test_a_token_that_did_not_sign_is_refused_at_once(monkeypatch, tmp_path, signs, signed):
    look = looking(monkeypatch, tmp_path, signed, signing=signs)
    if signs and not signed:
        with pytest.raises(JoinFailure) as failed:
            look.run()
        assert failed.value.code == "discovery_signature"
        assert "usage 'signing'" in str(failed.value)
        assert Server.asked == 2, "a token may have been made right now"
    else:
        assert look.run()["token"] == "accepted"
