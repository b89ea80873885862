# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses a Node registers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import join_inputs

from ._machines import machine

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
