# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile for systems with NetworkManager, read by NetworkManager's own library."""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import system_network
from tests.integration.liveimage.test_keyfiles import read

FOUND = system_network.Network(
    "52:54:00:aa:00:01",
    {4: "203.0.113.20/26", 6: "2001:db8:1::2/64"},
    {4: "203.0.113.1", 6: "fe80::1"},
    ["185.12.64.1", "2a01:4ff:ff00::add:1"],
)


def test_networkmanager_understands_all_of_the_profile():
    alone = FOUND._replace(addresses={4: FOUND.addresses[4]}, gateways={4: FOUND.gateways[4]}, servers=[])
    answers = read({"both": system_network.keyfile(FOUND), "ipv4": system_network.keyfile(alone)})
    for answer in answers.values():
        assert (answer["warnings"], answer["unknown"]) == ([], [])
    both = answers["both"]["settings"]
    assert both["connection"]["autoconnect-priority"] == 100
    assert both["ipv4"]["address-data"] == [{"address": "203.0.113.20", "prefix": 32}]
    assert (both["ipv4"]["method"], both["ipv4"]["gateway"]) == ("manual", "203.0.113.1")
    assert both["ipv6"]["address-data"] == [{"address": "2001:db8:1::2", "prefix": 64}]
    assert (both["ipv6"]["method"], both["ipv6"]["gateway"]) == ("manual", "fe80::1")
    assert answers["ipv4"]["settings"]["ipv6"]["method"] == "auto"
