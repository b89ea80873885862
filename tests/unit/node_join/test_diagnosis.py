# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the cause of a failed join is found: lines of the kubelet, requests, versions."""

from __future__ import annotations

import base64
import time
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done, Host
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import (
    check,
    codes,
    join_files,
    tokens,
    wait,
)

EXIT = "kubelet.service: Main process exited, code=exited, status=1/FAILURE"
CSR = "E1121 12:00:00.1 1 certificate_manager.go:566] Failed while requesting a signed certificate: "


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (CSR + "cannot create certificate signing request: Unauthorized", "token_refused"),
        (
            CSR + 'certificatesigningrequests.certificates.k8s.io is forbidden: User "system:bootstrap:abcdef" cannot '
            'create resource "certificatesigningrequests" in API group',
            "csr_forbidden",
        ),
        (CSR + "Post https://x: x509: certificate signed by unknown authority", "ca_mismatch"),
        (CSR + "x509: certificate has expired or is not yet valid: current time", "clock_skew"),
        (CSR + "dial tcp 192.0.2.1:6443: connect: no route to host", "api_unreachable"),
        ("I1121 all is well", None),
    ],
)
def test_reasons_in_the_log(line, code):
    assert wait.cause(["first", line, 'E "Error getting node" err="node x not found"'])[0] == code


def test_a_reason_is_looked_for_in_the_begin_of_a_line():
    """A line of journald has up to 48 KiB; with "csr" all over it, a look at all of it takes minutes."""
    assert wait.cause(["csr" * 16000 + "Unauthorized"]) == (None, None)
    code, line = wait.cause(["csr" * 1000 + "Unauthorized" + "x" * 48000])
    assert (code, len(line)) == ("token_refused", 4096)


NO_SWAP = "failed to run Kubelet: running with swap on is not supported"
STRICT = 'failed to decode: strict decoding error: unknown field "maxPod"'
#: What kubelet 1.36 says at every start before it has its certificate; it means nothing.
HARMLESS = (
    'I1125 01:02:03.4 99 bootstrap.go:241] "unable to read existing bootstrap client config from '
    '/etc/kubernetes/kubelet.conf: invalid configuration: [unable to read client-cert]"'
)
#: What kubelet 1.37 says at every start.
EFFECTIVE = [
    'I1125 01:02:03.4 99 server.go:257] "Effective KubeletConfiguration" config=<',
    "\tapiVersion: kubelet.config.k8s.io/v1beta1",
    '\tfoo: "command failed" err="none"',
    " >",
]
FAILED = 'E1125 01:02:03.5 99 run.go:72] "command failed" err='


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([FAILED + f'"{NO_SWAP}"'], NO_SWAP),
        ([FAILED + f'"{STRICT}"'.replace('"maxPod"', '\\"maxPod\\"')], STRICT),
        ([FAILED + "<", "\tfirst", "\tsecond", " >"], "first second"),
        ([FAILED + '"old"', EXIT, FAILED + '"new"', EXIT], "new"),
        ([FAILED + '"a"', EXIT, HARMLESS, *EFFECTIVE], "a"),
        (
            ['E1 kubelet.go:1850] "Failed to start ContainerManager" err="no cpu"'],
            "Failed to start ContainerManager: no cpu",
        ),
        (['{"ts":1.5,"caller":"app/run.go:72","msg":"command failed","err":"in \\"JSON\\""}'], 'in "JSON"'),
        (["Error: unknown flag: --network-plugin"], "unknown flag: --network-plugin"),
        (["panic: runtime error: index out of range"], "panic: runtime error: index out of range"),
        ([FAILED + '"cut off in the mid'], "cut off in the mid"),
        ([FAILED.rstrip("r=e")], ""),
        (EFFECTIVE, ""),
        ([HARMLESS, EXIT], ""),
    ],
)
def test_the_reason_of_an_exit(lines, reason):
    assert wait.exit_reason(["I first", *lines, EXIT, HARMLESS]) == reason


@pytest.mark.parametrize(
    ("reason", "hopeless"),
    [
        ("failed to parse kubelet flag: unknown flag: --pod-infra-container-image", True),
        ("unknown flag: --network-plugin", True),
        ("failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: " + STRICT, True),
        ("failed to validate kubelet configuration, error: invalid configuration: maxPods must be positive", True),
        (NO_SWAP, True),
        ("failed to run Kubelet: kubelet is configured to not run on a host using cgroup v1", True),
        ("failed to run Kubelet: validate service connection: dial unix /run/x.sock: connect: no such file", False),
        ("", False),
    ],
)
def test_reasons_after_which_no_start_helps(reason, hopeless):
    assert wait.hopeless(reason) is hopeless


def test_tail_leaves_out_noise_and_shortens():
    noise = ['E "Unable to register mirror pod because node is not registered yet"', HARMLESS] * 50
    text = wait.tail(["first", "x" * 1000, *EFFECTIVE] + noise + [EXIT, ""])
    assert text.splitlines() == ["first", "x" * 400, EXIT]
    assert wait.exits([EXIT, "a", EXIT]) == 2


class Unit(Host):
    """A machine whose kubelet ends again and again: its log, the number of its restarts."""

    def __init__(self, root, lines, restarts):
        super().__init__(str(root), self.answer)
        self.lines, self.restarts = lines, list(restarts)

    def answer(self, commands):
        return [self.one(argv) for argv, _seconds, _stdin in commands]

    def one(self, argv):
        if argv[0] == "systemctl":
            count = self.restarts.pop(0) if len(self.restarts) > 1 else self.restarts[0]
            return Done(0, f"ActiveState=activating\nLoadState=loaded\nNRestarts={count}\n", "")
        newest = self.lines[::-1][: int(argv[argv.index("--lines") + 1])]
        return Done(0, "\n".join(newest if "--reverse" in argv else newest[::-1]), "")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The machine has its next state as soon as it is asked."""
    own = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=lambda seconds: None)
    monkeypatch.setattr(wait, "time", own)


def failure(tmp_path, lines, restarts):
    """Why a wait with ample time ends."""
    options = {"api_server": "https://192.0.2.1:6443", "node_name": "n1", "since": 0, "timeout": 600, "ready": False}
    with pytest.raises(codes.JoinFailure) as caught:
        wait.Wait(options, Unit(tmp_path, lines, restarts)).run()
    assert caught.value.code == "kubelet_exited"
    return caught.value.detail


def test_one_exit_is_enough_when_no_start_helps(tmp_path):
    lines = [*EFFECTIVE, FAILED + f'"{NO_SWAP}"', EXIT, HARMLESS]
    assert failure(tmp_path, lines, [1]).startswith(f"it ended once: {NO_SWAP}; its last lines:\n")


def test_a_crash_loop_with_much_to_say_is_seen(tmp_path):
    lines = [FAILED + '"no socket"', EXIT] + [f"I1125 line {number}" for number in range(5000)]
    # another run's restarts do not count
    text = failure(tmp_path, lines, [57, 57, 58, 60])
    assert text.startswith("it ended 3 times: no socket; its last lines:\nI1125 line 4988\n")


def test_harmless_lines_are_no_reason(tmp_path):
    lines = [HARMLESS, FAILED + '"no socket"', EXIT] * 3
    assert failure(tmp_path, lines, [0]).startswith("it ended 3 times: no socket; its last lines:\n")
    # one exit with such a line is no end: it goes on until there are three
    assert failure(tmp_path, [HARMLESS, EXIT], [0, 0, 3]).startswith("it ended 3 times; its last lines:\n")


def request(name: str, created: str, node: str = "n1", conditions=(), signer=wait._SIGNER) -> dict:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:" + node)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = made.public_bytes(serialization.Encoding.PEM)
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"signerName": signer, "request": base64.b64encode(pem).decode()},
        "status": {"conditions": [{"type": kind, "reason": "R", "message": "m"} for kind in conditions]},
    }


def test_the_newest_request_of_this_node():
    listed = {
        "items": [
            request("old", "2026-11-21T12:00:00Z", conditions=["Denied"]),
            request("mine", "2026-11-21T12:00:10Z"),
            request("another node's", "2026-11-21T12:00:20Z", node="n2"),
            request("serving", "2026-11-21T12:00:20Z", signer="kubernetes.io/kubelet-serving"),
            {"metadata": {}, "spec": {"signerName": wait._SIGNER, "request": "!"}},
        ]
    }
    found = wait.newest_request(listed, "n1", 1795262400)
    assert (found["name"], found["approved"], found["denied"]) == ("mine", False, None)
    assert wait.newest_request(listed, "n1", 1795262411) is None
    assert wait.newest_request(None, "n1", 0) is None


@pytest.mark.parametrize(("condition", "reason"), [("Denied", "R m"), ("Failed", "R m"), ("Approved", None)])
def test_what_became_of_a_request(condition, reason):
    listed = {"items": [request("a", "2026-11-21T12:00:00Z", conditions=[condition])]}
    assert wait.newest_request(listed, "n1", 0)["denied"] == reason


@pytest.mark.parametrize(
    ("kubelet", "server", "said"),
    [
        ("1.36.4", "v1.36.0", ""),
        ("1.33.1", "v1.36.0", ""),
        ("1.32.1", "v1.36.0", "more than 3 minor versions older"),
        ("1.36.4", "v1.35.8", "newer than the API server"),
        ("1.24.0", "v1.26.0", ""),
        ("1.23.0", "v1.26.0", "more than 2"),
        ("1.36.4", "v2.36.0", "another major version"),
        ("1.35.1-rc.1", "v1.35.1+k3s1", ""),
    ],
)
def test_versions_that_go_together(kubelet, server, said):
    assert said in check.skew_problem(kubelet, server)
    assert bool(check.skew_problem(kubelet, server)) is bool(said)


def test_every_failure_says_what_to_do():
    for code in codes.CODES:
        failure = codes.JoinFailure(code, "seen.")
        assert str(failure).startswith(codes.CODES[code][0] + ": seen. To mend it: ")
        assert failure.result == {"code": code, "detail": "seen."}


def test_kubeconfigs():
    text = join_files.bootstrap("https://h:6443", "abcdef.0123456789abcdef")
    assert join_files.token_of(text) == ("https://h:6443", "abcdef.0123456789abcdef")
    assert join_files.server_of(text) == join_files.server_of(join_files.final("https://h:6443")) == "https://h:6443"
    assert join_files.server_of("clusters:\n- cluster:\n    server: https://h:6443/\n  name: x\n") == "https://h:6443"
    assert join_files.server_of("kind: Config\n") is None
    with pytest.raises(ValueError) as caught:
        join_files.token_of('{"users": [{"user": {"token": "SECRET"}}]}')
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("1h30m", 5400), ("900", 900), (90, 90), ("24h", 86400)])
def test_life_of_a_token(text, seconds):
    assert tokens.ttl_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "59s", "25h", "1d", "-5m", "m"])
def test_no_life_of_a_token(text):
    with pytest.raises(tokens.InvalidToken, match=r"^ttl: "):
        tokens.ttl_seconds(text)


def test_secret_of_a_token():
    token_id, token_secret = tokens.new_token()
    made = tokens.token_secret(token_id, token_secret, 0, 900, ["system:bootstrappers:a"], ["authentication"], "d")
    assert made["metadata"]["name"] == "bootstrap-token-" + token_id
    assert made["type"] == "bootstrap.kubernetes.io/token"
    assert made["stringData"] == {
        "token-id": token_id,
        "token-secret": token_secret,
        "expiration": "1970-01-01T00:15:00Z",
        "description": "d",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:a",
    }
    for change in ({"groups": ["system:masters"]}, {"usages": ["all"]}):
        given = {"groups": [], "usages": [], **change}
        with pytest.raises(tokens.InvalidToken):
            tokens.token_secret(token_id, token_secret, 0, 900, given["groups"], given["usages"], "")
