# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole documents and the keyfiles they become; this file, run as a program, writes them again.

dev/run sh -c 'PYTHONPATH=$ANSIBLE_COLLECTIONS_PATH python tests/unit/liveimage/nmstate/test_golden.py'
"""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import nmstate

HERE = Path(__file__).parent
DOCUMENTS = sorted((HERE / "documents").glob("*.yaml"))
BELOW = [(kind, "parent") for kind in ("vlan", "vxlan", "macvlan", "macsec", "ipvlan")]
BELOW += [("hsr", "port1"), ("hsr", "port2")]
LEFT_ALONE = ("eth1", "eth2", "eth9")  # bases that are no part of their document
HEADER = "# Copyright (c) 2026 kubenode.provision authors\n# SPDX-License-Identifier: GPL-3.0-or-later\n"


def golden(document: Path) -> Path:
    return HERE / "golden" / (document.stem + ".txt")


def made(document: Path) -> str:
    files = nmstate.keyfiles(nmstate.parse(document.read_text()))
    return HEADER + "".join("\n==> %s <==\n%s" % pair for pair in files.items())


def turned(value):
    """The same with the keys of all mappings in the other order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_a_document_becomes_these_keyfiles(document):
    assert made(document) == golden(document).read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_the_order_of_keys_means_nothing(document):
    given = nmstate.parse(document.read_text())
    assert list(nmstate.keyfiles(turned(given)).items()) == list(nmstate.keyfiles(given).items())


def test_no_golden_file_is_left_over():
    assert sorted((HERE / "golden").iterdir()) == [golden(one) for one in DOCUMENTS]
    assert len(DOCUMENTS) >= 12


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_controllers_come_before_ports_and_bases_before_vlans(document):
    seen: set[str] = set()
    for text in nmstate.keyfiles(nmstate.parse(document.read_text())).values():
        profile = configparser.RawConfigParser(strict=True)
        profile.read_string(text)
        master = profile.get("connection", "master", fallback=None)
        below = [profile.get(*key, fallback=None) for key in BELOW]
        for needed in filter(None, (master, *below)):
            assert needed in seen or needed in LEFT_ALONE
        seen.update((profile.get("connection", "interface-name", fallback=""), profile["connection"]["uuid"]))


def test_a_port_that_is_only_listed_is_taken_for_an_ethernet_interface():
    """As nmstatectl does: without a profile it would not join, and the host would have no network."""
    bond = {"name": "b", "type": "bond", "link-aggregation": {"mode": 1, "port": ["e0", "e1", "e2"]}}
    others = [{"name": "e0"}, {"name": "e1", "state": "ignore"}]
    result = nmstate.convert({"interfaces": [bond, *others]})
    assert list(result.files) == ["b.nmconnection", "e0.nmconnection", "e2.nmconnection"]
    described = nmstate.keyfiles({"interfaces": [bond, {"name": "e2"}]})
    assert result.files["e2.nmconnection"] == described["e2.nmconnection"]
    assert result.warnings == (
        "interfaces[0].link-aggregation.port[1]: e1 is ignored elsewhere, so it gets no profile and does not become a "
        "port of b",
        "interfaces[0].link-aggregation.port[2]: e2 is not described, so it is taken for an ethernet interface",
    )


def test_ports_that_only_their_settings_name():
    link = {"mode": 1, "ports-config": [{"name": "e0", "priority": 7}, {"name": "e1", "queue-id": 2}]}
    files = nmstate.keyfiles({"interfaces": [{"name": "b", "type": "bond", "link-aggregation": link}]})
    assert list(files) == ["b.nmconnection", "e0.nmconnection", "e1.nmconnection"]
    assert "prio=7" in files["e0.nmconnection"]


def test_the_other_end_of_a_pair_may_be_a_port():
    bridge = {"name": "br0", "type": "linux-bridge", "bridge": {"port": [{"name": "v1"}]}}
    files = nmstate.keyfiles({"interfaces": [bridge, {"name": "v0", "type": "veth", "veth": {"peer": "v1"}}]})
    assert "type=veth" in files["v1.nmconnection"]
    assert "master=br0" in files["v1.nmconnection"]


def test_the_base_of_a_vlan_is_left_alone():
    vlan = {"name": "v", "type": "vlan", "vlan": {"base-iface": "e0", "id": 5}, "ipv4": {"enabled": True, "dhcp": True}}
    result = nmstate.convert({"interfaces": [vlan]})
    assert (list(result.files), result.warnings) == (["v.nmconnection"], ())


def test_routers_may_have_the_same_addresses():
    same = {"enabled": True, "address": [{"ip": "192.0.2.1", "prefix-length": 24}]}
    routers = [
        {"name": f"vrf{at}", "type": "vrf", "mtu": 65575, "vrf": {"port": [f"e{at}"], "route-table-id": 5 + at}}
        for at in (0, 1)
    ]
    links = [{"name": f"e{at}", "ipv4": same} for at in (0, 1)]
    assert len(nmstate.keyfiles({"interfaces": [*routers, *links]})) == 4


def test_the_loopback_interface_keeps_its_addresses_and_holds_no_name_servers():
    links = [
        {"name": "lo", "type": "loopback"},
        {"name": "e0", "ipv6": {"enabled": True, "autoconf": True, "dhcp": True}},
    ]
    servers = {"config": {"server": ["2001:db8::1"]}}
    files = nmstate.keyfiles({"interfaces": links, "dns-resolver": servers})
    assert "address0=127.0.0.1/8\nmethod=manual" in files["lo.nmconnection"]
    assert "address0=::1/128\nmethod=manual" in files["lo.nmconnection"]
    assert "dns=2001:db8::1;" in files["e0.nmconnection"]


def test_what_older_systems_do_not_know_is_a_warning():
    kinds = [("hsr", "hsr", {"port1": "a", "port2": "b"}), ("ipvlan", "ipvlan", {"base-iface": "a"})]
    for kind, section, content in kinds:
        result = nmstate.convert({"interfaces": [{"name": "e", "type": kind, section: content}]})
        assert [f"interfaces[0]: {kind} needs NetworkManager 1." in one for one in result.warnings] == [True]


def test_what_is_empty_asks_for_nothing():
    link = {"name": "eth0", "ethernet": {"fec": {}}, "dispatch": {}}
    shown = {"capture": {}, "ovs-db": {}, "ovn": {}, "interfaces": [link]}
    assert nmstate.keyfiles(shown) == nmstate.keyfiles({"interfaces": [{"name": "eth0"}]})


def test_the_name_of_a_host_is_only_a_warning():
    result = nmstate.convert({"hostname": {"config": "a.example.com"}, "interfaces": [{"name": "eth0"}]})
    assert list(result.files) == ["eth0.nmconnection"]
    assert ["hostname.config" in one for one in result.warnings] == [True]


if __name__ == "__main__":
    for each in DOCUMENTS:
        golden(each).write_text(made(each))
