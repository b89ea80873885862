# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of join: what Kubernetes takes of a kubelet, and which addresses its Node registers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import join_inputs

from ._machines import machine

OWN = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/anything",
    "x.node.kubernetes.io/anything",
    "kubelet.kubernetes.io/anything",
    "example.com/rack",
    "rack",
)
REFUSED = (
    "node-role.kubernetes.io/worker",
    "node-restriction.kubernetes.io/x",
    "kubernetes.io/role",
    "topology.kubernetes.io/rack",
    "x.k8s.io/y",
    "k8s.io/y",
)


@pytest.mark.parametrize("key", OWN)
def test_a_kubelet_may_set_its_own_labels(key):
    assert join_inputs.check_own_label(key) == key


@pytest.mark.parametrize("key", REFUSED)
def test_labels_of_the_cluster_are_refused(key):
    with pytest.raises(join_inputs.InvalidName, match="may not set the label"):
        join_inputs.check_own_label(key)


def test_a_refused_role_says_who_sets_it():
    with pytest.raises(join_inputs.InvalidName, match=r"kubectl label node NAME node-role.kubernetes.io/worker="):
        join_inputs.check_own_label("node-role.kubernetes.io/worker")


@pytest.mark.parametrize("key", ["", "/x", "A_/x", "x/y/z", "-x", "x" * 64, "a b", "example.com/", "x\n", "Ex.com/y"])
def test_no_key_of_a_label(key):
    with pytest.raises(join_inputs.InvalidName):
        join_inputs.check_label_key(key)


@pytest.mark.parametrize("value", ["a b", "-", "a,b", "x" * 64, "a\n", 5, True, None])
def test_no_value_of_a_label(value):
    with pytest.raises(join_inputs.InvalidName, match=r"^k: "):
        join_inputs.check_label_value("k", value)


@given(st.text(max_size=70))
def test_what_is_taken_as_a_value_needs_no_quoting(value):
    try:
        join_inputs.check_label_value("k", value)
    except join_inputs.InvalidName:
        return
    assert len(value) <= 63
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in value)


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("a=b:NoSchedule", {"key": "a", "value": "b", "effect": "NoSchedule"}),
        ("example.com/a:NoExecute", {"key": "example.com/a", "value": "", "effect": "NoExecute"}),
    ],
)
def test_taints(text, taint):
    assert join_inputs.parse_taints([text]) == [taint]


@pytest.mark.parametrize("text", ["a=b", "a=b:Never", ":NoSchedule", "a=b=c:NoSchedule", "a= :NoSchedule", 3])
def test_no_taint(text):
    with pytest.raises(join_inputs.InvalidName):
        join_inputs.parse_taints([text])


def test_a_taint_twice():
    with pytest.raises(join_inputs.InvalidName, match="twice"):
        join_inputs.parse_taints(["a=1:NoSchedule", "a=2:NoSchedule"])
    assert len(join_inputs.parse_taints(["a=1:NoSchedule", "a=1:NoExecute"])) == 2


@pytest.mark.parametrize("text", ["hcloud://123", "hrobot://4711", "aws:///eu-central-1a/i-0ab", "kind://docker/a/b"])
def test_provider_ids(text):
    assert join_inputs.check_provider_id(text) == text


@pytest.mark.parametrize("text", ["123", "hcloud://", "hcloud://abc", "hrobot://0", "x://a b", "X://1", "hcloud://1\n"])
def test_no_provider_id(text):
    with pytest.raises(join_inputs.InvalidName):
        join_inputs.check_provider_id(text)


@pytest.mark.parametrize(
    ("wanted", "hostname", "name"), [("", "Node-1\n", "node-1"), ("n", "Node-1", "n"), ("a.b", "", "a.b")]
)
def test_name_of_the_node(wanted, hostname, name):
    assert join_inputs.node_name(wanted, hostname) == name


@pytest.mark.parametrize("name", ["Node", "a_b", "-a", "a.", "", "x" * 64, "a\n", "a..b"])
def test_no_name_of_a_node(name):
    with pytest.raises(join_inputs.InvalidName):
        join_inputs.check_node_name(name)


# --- which addresses a Node registers


NETWORK = machine()["network"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", []),
        ("auto4", ["192.0.2.7"]),
        ("auto6", ["2001:db8::7"]),
        ("dual", ["192.0.2.7", "2001:db8::7"]),
        ("10.0.0.7", ["10.0.0.7"]),
        (["10.0.0.7", "2001:DB8:0::7"], ["10.0.0.7", "2001:db8::7"]),
        ("10.0.0.7, 2001:db8::7", ["10.0.0.7", "2001:db8::7"]),
    ],
)
def test_addresses(wanted, found):
    assert join_inputs.node_addresses(join_inputs.check_addresses(wanted), NETWORK) == found


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["192.0.2.8"], "no address of this machine; it has"),
        (["192.0.2.7", "10.0.0.7"], "one IPv4 and one IPv6"),
        (["127.0.0.1"], "not an address that other machines reach"),
        (["fe80::7"], "not an address that other machines reach"),
        (["auto"], "no IP address"),
        (["192.0.2.7/24"], "no IP address"),
    ],
)
def test_addresses_that_are_refused(wanted, said):
    with pytest.raises(join_inputs.InvalidAddress, match=said):
        join_inputs.node_addresses(join_inputs.check_addresses(wanted), NETWORK)


def test_an_address_that_lasts_is_preferred():
    entry = {"family": 6, "interface": "eth0", "prefix": 64}
    network = {
        "addresses": [
            {**entry, "address": "2001:db8::1", "dynamic": True},
            {**entry, "address": "2001:db8::2", "deprecated": True},
            {**entry, "address": "2001:db8::3"},
        ],
        "default": {"6": {"interface": "eth0", "address": "2001:db8::1"}},
    }
    assert join_inputs.node_addresses("auto6", network) == ["2001:db8::3"]


@pytest.mark.parametrize("wanted", ["auto6", "dual"])
def test_a_family_that_is_not_there(wanted):
    network = {"addresses": NETWORK["addresses"], "default": {"4": NETWORK["default"]["4"], "6": None}}
    with pytest.raises(join_inputs.InvalidAddress, match="no IPv6 address with a default route"):
        join_inputs.node_addresses(wanted, network)


@given(st.lists(st.ip_addresses().map(str), max_size=3))
def test_only_the_machines_own_addresses_are_taken(wanted):
    try:
        found = join_inputs.node_addresses(wanted, NETWORK)
    except join_inputs.InvalidAddress:
        return
    assert set(found) <= {entry["address"] for entry in NETWORK["addresses"]}
