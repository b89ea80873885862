# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What user data and the provisioner are given: single values, and the variables of the roles."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.filter.node_user_data import node_user_data
from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data as values
from tests.unit.node.test_inputs import REFUSED, SECRETS
from tests.unit.node_join._machines import Authority
from tests.unit.node_userdata.examples import FULL, SMALL

DER = b"\x30\x82\x00\x05abcde"
PEM = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(DER).decode()}\n-----END CERTIFICATE-----\n"
DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (values.token, " abcdef.0123456789abcdef\n", "abcdef.0123456789abcdef"),
        (values.version, "v1.36.4", "1.36.4"),
        (values.version, "1.36.4", "1.36.4"),
        (values.cloud_provider, "", ""),
        (values.cloud_provider, "external", "external"),
        (values.api_server, "https://api.example.com", "https://api.example.com:443"),
        (values.api_server, "https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
        (values.api_server, "https://[2001:db8::1]:6443", "https://[2001:db8::1]:6443"),
        (values.certificates, "comment\r\n" + PEM.replace("\n", "\r\n") + PEM, PEM + PEM),
        (values.hostname, "node-1.example", "node-1.example"),
        (values.ssh_key, "ssh-ed25519 AAAA me@host\n", "ssh-ed25519 AAAA me@host"),
        (values.ssh_key, 'from="10.0.0.0/8" ssh-rsa AAAA', 'from="10.0.0.0/8" ssh-rsa AAAA'),
        (
            values.url_and_digest,
            f"http://10.0.0.1/p?x=%20y#sha256={DIGEST.upper()}",
            ("http://10.0.0.1/p?x=%20y", DIGEST),
        ),
        (values.proxy, "", ""),
        (values.proxy, "http://user:pass@proxy:3128", "http://user:pass@proxy:3128"),
    ],
)
def test_good(check, value, expected):
    assert check(value) == expected


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (values.token, "ABCDEF.0123456789abcdef"),
        (values.token, "abcdef.0123456789abcde"),
        (values.token, "abcdef.0123456789abcdef\nabcdef.0123456789abcdef"),
        (values.version, "1.36"),
        (values.version, "1.36.4; reboot"),
        (values.version, "01.2.3"),
        (values.cloud_provider, "hetzner"),
        (values.api_server, "http://10.0.0.1:6443"),
        (values.api_server, "https://user@10.0.0.1:6443"),
        (values.api_server, "https://10.0.0.1:6443/path"),
        (values.api_server, "https://10.0.0.1:99999"),
        (values.api_server, "https://-x:6443"),
        (values.api_server, "https://a b:6443"),
        (values.api_server, "https://a$(reboot):6443"),
        (values.certificates, ""),
        (values.certificates, PEM.replace("MI", "!!")),
        (values.certificates, PEM.replace(base64.b64encode(DER).decode(), base64.b64encode(DER[:-1]).decode())),
        (values.certificates, PEM.replace("CERTIFICATE", "PRIVATE KEY")),
        (values.hostname, "Node-1"),
        (values.hostname, "node_1"),
        (values.hostname, "a" * 64),
        (values.hostname, "a." * 127 + "aa"),
        (values.hostname, "node-1\n"),
        (values.ssh_key, "AAAA"),
        (values.ssh_key, "ssh-rsa AAAA\nssh-rsa BBBB"),
        (values.ssh_key, ""),
        (values.url_and_digest, "http://10.0.0.1/p"),
        (values.url_and_digest, "http://10.0.0.1/p#sha256=abc"),
        (values.url_and_digest, "http://10.0.0.1/p#md5=" + DIGEST),
        (values.url_and_digest, "file:///p#sha256=" + DIGEST),
        (values.url_and_digest, 'http://10.0.0.1/"p#sha256=' + DIGEST),
        (values.url_and_digest, "http://10.0.0.1/p\\#sha256=" + DIGEST),
        (values.url_and_digest, "http://10.0.0.1/p q#sha256=" + DIGEST),
        (values.url_and_digest, "http://10.0.0.1/p'q#sha256=" + DIGEST),
        (values.url_and_digest, "http://[10.0.0.1/p#sha256=" + DIGEST),
        (values.proxy, "socks5://x"),
        (values.proxy, "http://x\ny"),
    ],
)
def test_bad(check, value):
    with pytest.raises(ValueError):
        check(value)


def test_a_wrong_token_is_not_repeated():
    with pytest.raises(ValueError) as caught:
        values.token("secret.secret")
    assert "secret" not in str(caught.value)


@settings(deadline=None)
@given(st.text())
def test_source_takes_nothing_that_curl_would_read_otherwise(text):
    try:
        url, _digest = values.url_and_digest(f"http://10.0.0.1/{text}#sha256={DIGEST}")
    except ValueError:
        return
    assert url.isascii()
    assert url.isprintable()
    assert not set(url) & set(" \"'\\#")


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=3))
def test_certificates_keep_every_byte(bodies):
    ders = [b"\x30\x82" + len(body).to_bytes(2, "big") + body for body in bodies]
    pem = "".join(PEM.replace(base64.b64encode(DER).decode(), base64.b64encode(der).decode()) for der in ders)
    once = values.certificates("x\n" + pem)
    assert values.certificates(once) == once
    found = [base64.b64decode(part.split("-----END")[0]) for part in once.split("CERTIFICATE-----\n")[1::2]]
    assert found == ders


# --- values of the roles' variables are refused where user data is made, by the roles' own rules


CA = Authority().pem
JOINS = {**SMALL, "phase": "all", "api_server": "https://192.0.2.1:6443", "ca_cert": CA, "token": FULL["token"]}


def refused(inputs: dict[str, Any]) -> str:
    with pytest.raises(AnsibleFilterError) as caught:
        node_user_data(inputs)
    return str(caught.value)


@pytest.mark.parametrize(("variables", "message"), REFUSED)
def test_what_base_refuses_is_not_rendered(variables, message):
    del message  # the same variable is named; a wrong type has a sentence of its own
    text = refused({**SMALL, "vars": {f"base_{name}": value for name, value in variables.items()}})
    assert any(f"base_{name}" in text for name in [*variables, "shutdown_grace_period_critical", "repository_keys"])


@pytest.mark.parametrize("variables", SECRETS)
def test_a_refusal_never_shows_a_credential(variables):
    text = refused({**SMALL, "vars": {f"base_{name}": value for name, value in variables.items()}})
    assert "geheim" not in text


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"labels": {"node-role.kubernetes.io/x": ""}}, "join_labels: a kubelet may not set"),
        ({"taints": ["a"]}, "join_taints: 'a' is no taint"),
        ({"node_name": "Node"}, "join_node_name: 'Node'"),
        ({"provider_id": "42"}, "join_provider_id"),
        ({"kubelet_config": {"maxPod": 1}}, "join_kubelet_config: maxPod: .*maxPods.* .kubelet 1.37.1"),
        ({"kubelet_drop_ins": {"a": {}}}, "join_kubelet_drop_ins: 'a' is no name"),
        ({"kubelet_drop_ins": {"a.conf": {"maxPod": 1}}}, "join_kubelet_drop_ins: a.conf: maxPod"),
        ({"kubelet_drop_ins": {"a.conf": "maxPod: 1"}}, "join_kubelet_drop_ins: a.conf: maxPod"),
        ({"kubelet_drop_ins": {"a.conf": "a: ["}}, "join_kubelet_drop_ins: a.conf: not YAML"),
        ({"kubelet_extra_args": {"pod-infra-container-image": "x"}}, "knows no flag --pod-infra-container-image"),
        ({"kubelet_extra_args": {"node-ip": "x"}}, "set join_node_ip instead"),
        ({"discovery": {"ca_hashes": ["x"]}}, "join_discovery: 'x' is no pin"),
        ({"timeout": 1}, "join_timeout: 1 must be from 5"),
        ({"timeout": "soon"}, "join_timeout is 'soon': give a whole number"),
        ({"token_create": {"kubeconfig": "x"}}, "join_token and join_token_create"),
        ({"reserved": {"kubelet": {}}}, "join_reserved"),
        ({"method": "kubadm"}, "join_method is 'kubadm': use one of"),
        ({"ready": "maybe"}, "join_ready is 'maybe'"),
        ({"lables": {}}, "'join_lables', which is no variable.*join_labels"),
    ],
)
def test_what_join_refuses_is_not_rendered(variables, message):
    text = refused({**JOINS, "vars": {f"join_{name}": value for name, value in variables.items()}})
    assert re.search(message, text), text


def test_what_has_an_input_of_its_own_is_checked_as_well():
    assert "base_kubernetes_version is '1.36.99'; no sha256" in refused({**JOINS, "kubelet_version": "1.36.99"})
    assert "join_ca_cert: there is no CA to trust" in refused({**JOINS, "ca_cert": None})


def test_the_fields_of_the_kubelet_that_will_be_installed():
    fields = {"vars": {"join_kubelet_config": {"maxPod": 1}}}
    assert "(kubelet 1.35.8)" in refused({**JOINS, **fields, "kubelet_version": "1.35.8"})
    # which kubelet a machine has that only joins, only the machine knows
    assert node_user_data({**JOINS, **fields, "phase": "join"})


def test_only_the_roles_that_will_run_are_checked_in_full():
    assert node_user_data({**SMALL, "vars": {"join_taints": ["a"]}})
    assert node_user_data({**JOINS, "phase": "join", "vars": {"base_kubernetes_version": "1.36.99"}})
    assert "join_taints" in refused({**SMALL, "vars": {"join_taints": {"a": "b"}}})


def test_all_that_is_wrong_is_reported_at_once():
    text = refused({**JOINS, "vars": {"base_swap": "on", "base_mirror": "y", "base_ipvs": 2, "join_taints": ["a"]}})
    assert [name in text for name in ("base_swap", "base_mirror", "base_ipvs", "join_taints")] == [True] * 4
    assert len(text.splitlines()) == 4


def test_one_fingerprint_is_no_list_of_its_letters():
    given_ = {**JOINS, "vars": {"base_repository_key_fingerprints": {"kubernetes": "DE15 B144"}}}
    assert "base_repository_key_fingerprints.kubernetes" in refused(given_)


def test_right_values_pass():
    variables = yaml.safe_load("base_swap: off\nbase_download_timeout: '60'\njoin_ready: 'true'\njoin_ca_file: ca.crt")
    assert node_user_data({**JOINS, "ca_cert": None, "vars": variables})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(name=st.sampled_from(sorted(role_specs.variables(*user_data.ROLES))), value=ANY)
@example(name="base_checksums", value={"\r": None})  # a key was a line of its own
@example(name="base_mirrors", value={"\u2028": 1})
@example(name="join_timeout", value=float("inf"))
@example(name="base_runtime_probe", value={"threshold": float("inf")})
@example(name="base_repository_key_fingerprints", value={"kubernetes": 0})
@example(name="base_repository_key_fingerprints", value={"docker": None})
def test_any_value_is_taken_or_refused_by_name(name, value):
    given_ = {"join_api_server": "https://192.0.2.1:6443", "join_ca_cert": CA, name: value}
    for line in user_data.findings(given_, user_data.ROLES):
        assert "_" in line
        assert line.isprintable()


def test_a_machine_that_joins_has_its_token_and_does_not_leave():
    create = {"join_token_create": {"kubeconfig": "x"}}
    missing = "token: is missing; phase all joins a cluster, and join_token_create makes one from a controller only"
    assert missing in refused({**JOINS, "token": "", "vars": create})
    assert "phase join joins a cluster" in refused({**JOINS, "token": None, "phase": "join"})
    assert node_user_data({**JOINS, "token": None, "vars": {"join_token": FULL["token"]}})
    assert "join_state: is absent" in refused({**JOINS, "vars": {"join_state": "absent"}})


def test_a_line_for_the_role_names_its_variable():
    assert user_data.in_role("token: is missing") == "join_token: is missing"
    assert user_data.in_role("pause: is 0") == "node_user_data_pause: is 0"
    for line in ("vars: has 'x'", "join_taints: 'a' is no taint", "the user data is 9 bytes"):
        assert user_data.in_role(line) == line
