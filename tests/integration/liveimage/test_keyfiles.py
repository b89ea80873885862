# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkManager's own library reads what our NMState conversion writes, and understands what the document says."""

import itertools
import json
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import nmstate
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate import controllers

READER = Path(__file__).parent / "read_keyfiles.py"
ALL = sorted((Path(__file__).parents[2] / "unit/liveimage/nmstate/documents").glob("*.yaml"))
DOCUMENTS = [one for one in ALL if one.stem != "newer"]  # that one needs 1.52
NEWER = {"bond-port.prio"}  # a key that the library of Debian 12, 1.42.4, does not know yet; 1.42.8 does
PROFILE = "[connection]\nid=a\nuuid=a6e4a6a4-3c5c-5d2c-9c54-4a4b7e1f4c11\ntype=802-3-ethernet\n"


def read(files):
    """What NetworkManager makes of keyfiles; the bindings belong to the system's Python."""
    command = ["/usr/bin/python3", str(READER)]
    done = subprocess.run(command, input=json.dumps(files), text=True, capture_output=True, check=True, timeout=120)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers():
    """All documents in one go."""
    files = {
        f"{document.stem}/{name}": text
        for document in DOCUMENTS
        for name, text in nmstate.keyfiles(nmstate.parse(document.read_text())).items()
    }
    return read(files)


def test_every_keyfile_of_every_document_is_accepted(answers):
    assert len(answers) > 30
    complaints = {
        name: (one.get("error"), warnings, new)
        for name, one in answers.items()
        for warnings in [[text for text in one.get("warnings", []) if not text.endswith("does not exist")]]
        for new in [set(one.get("unknown", [])) - NEWER]
        if "error" in one or warnings or new
    }
    assert complaints == {}


def test_the_reader_does_complain():
    found = read({
        "no type": "[connection]\nid=a\n",
        "no number": PROFILE + "[ethernet]\nmtu=many\n",
        "no address": PROFILE + "[ipv4]\nmethod=manual\naddress0=nowhere\n",
        "no key": PROFILE + "[ethernet]\nmut=1500\n",
        "no option": PROFILE.replace("802-3-ethernet", "bond") + "interface-name=b\n[bond]\nmode=1\nmimon=1\n",
    })  # fmt: skip
    assert "type" in found["no type"]["error"]
    assert found["no number"]["warnings"]
    assert "error" in found["no address"] or found["no address"]["warnings"]
    assert found["no key"]["unknown"] == ["ethernet.mut"]
    assert "error" in found["no option"] or found["no option"]["warnings"] or found["no option"]["unknown"]


def setting(answers, name, section):
    return answers[name + ".nmconnection"]["settings"][section]


def test_static_addresses_routes_and_name_servers(answers):
    v4 = setting(answers, "ethernet-static/eno1", "ipv4")
    assert v4["address-data"] == [
        {"address": "192.0.2.10", "prefix": 24},
        {"address": "198.51.100.10", "prefix": 32},
    ]
    assert v4["route-data"] == [
        {"dest": "0.0.0.0", "prefix": 0, "next-hop": "192.0.2.1", "metric": 0, "table": 254},
        {"dest": "203.0.113.0", "prefix": 24, "next-hop": "192.0.2.2", "metric": 150, "table": 200},
        {"dest": "203.0.113.200", "prefix": 32, "metric": 0, "table": 254, "src": "192.0.2.10"},
        {"dest": "10.0.0.0", "prefix": 8, "metric": 0, "table": 254, "type": "blackhole"},
        {"dest": "100.64.0.0", "prefix": 10, "next-hop": "192.0.2.3", "metric": 0, "table": 254,
         "cwnd": 20, "lock-cwnd": True},
    ]  # fmt: skip
    assert (v4["dns-data"], v4["dns-priority"], v4["may-fail"]) == (["192.0.2.53", "192.0.2.54"], 50, False)
    v6 = setting(answers, "ethernet-static/eno1", "ipv6")
    assert v6["address-data"] == [{"address": "2001:db8::10", "prefix": 64}]
    assert (v6["dns-data"], v6["dns-search"]) == (["2001:db8::53"], ["example.com", "example.org"])
    assert v6["dns-options"] == ["rotate", "ndots:2"]


def test_the_link_and_its_description(answers):
    link = setting(answers, "ethernet-static/eno1", "802-3-ethernet")
    assert (link["mtu"], link["speed"], link["duplex"]) == (9000, 1000, "full")
    assert bytes(link["cloned-mac-address"]).hex(":") == "52:54:00:12:34:56"
    assert setting(answers, "ethernet-static/eno1", "user")["data"] == {
        "nmstate.interface.description": 'uplink; 100% = \\ "quoted" # no comment'
    }


def test_automatic_addresses(answers):
    v4 = setting(answers, "ethernet-automatic/ens3", "ipv4")
    assert (v4["method"], v4["ignore-auto-dns"], v4["ignore-auto-routes"]) == ("auto", True, True)
    assert (v4["route-table"], v4["route-metric"], v4["dhcp-timeout"]) == (100, 77, 2147483647)
    assert v4["dhcp-client-id"] == "01:52:54:00:12:34:56"
    assert setting(answers, "ethernet-automatic/ens4", "ipv6")["method"] == "dhcp"
    assert setting(answers, "ethernet-automatic/ens5", "ipv6")["method"] == "link-local"
    assert setting(answers, "ethernet-automatic/ens6", "connection")["autoconnect"] is False


def test_bonds_and_vlans(answers):
    assert setting(answers, "bond-lacp-vlans/bond0", "bond")["options"] == {
        "mode": "802.3ad", "miimon": "140", "lacp_rate": "fast", "xmit_hash_policy": "layer3+4",
        "ad_select": "bandwidth", "ad_actor_sys_prio": "1000", "ad_actor_system": "02:00:00:00:00:10",
        "min_links": "1",
    }  # fmt: skip
    port = setting(answers, "bond-lacp-vlans/ens1f0", "connection")
    assert (port["master"], port["slave-type"]) == ("bond0", "bond")
    vlan = setting(answers, "bond-lacp-vlans/bond0.20", "vlan")
    assert (vlan["parent"], vlan["id"], vlan["flags"]) == ("bond0", 20, 1 | 4 | 8)
    assert setting(answers, "bond-lacp-vlans/bond0.30", "vlan")["protocol"] == "802.1ad"


def test_an_interface_found_by_its_mac_address(answers):
    name = "identifier-mac/uplink of the host"
    assert "interface-name" not in setting(answers, name, "connection")
    assert bytes(setting(answers, name, "802-3-ethernet")["mac-address"]).hex(":") == "52:54:00:ab:cd:ef"
    parent = setting(answers, "identifier-mac/storage", "vlan")["parent"]
    assert parent == setting(answers, name, "connection")["uuid"]


def test_bridges(answers):
    bridge = setting(answers, "bridge/br0", "bridge")
    assert (bridge["forward-delay"], bridge["priority"], bridge["ageing-time"]) == (4, 28672, 600)
    port = setting(answers, "bridge/eth1", "bridge-port")
    assert (port["hairpin-mode"], port["path-cost"], port["priority"]) == (True, 50, 16)
    assert setting(answers, "bridge-vlans/eth2", "bridge-port")["vlans"] == [
        {"vid-start": 5, "vid-end": 5, "pvid": True, "untagged": True},
        {"vid-start": 10, "vid-end": 10, "pvid": False, "untagged": False},
        {"vid-start": 200, "vid-end": 299, "pvid": False, "untagged": False},
    ]


def test_rules(answers):
    first, second = setting(answers, "rules/eth1", "ipv4")["routing-rules"]
    assert first == {"family": 2, "priority": 30000, "from": "198.51.100.0", "from-len": 24, "table": 200}
    assert (second["fwmark"], second["fwmask"], second["to"], second["to-len"]) == (16, 255, "203.0.113.0", 24)
    blackhole, suppressed = setting(answers, "rules/eth0", "ipv4")["routing-rules"]
    assert (blackhole["from"], blackhole["action"]) == ("203.0.113.9", 6)
    assert (suppressed["iifname"], suppressed["suppress-prefixlength"]) == ("eth0", 0)


def limits():
    """Documents at both ends of what each option of a bond and a bridge may be."""
    options = {key: list(words) for key, words in controllers._WORDS.items()}
    options.update({key: [low, high] for key, (low, high) in controllers._NUMBERS.items() if key != "arp_missed_max"})
    options.update({key: [0, 1] for key in ("all_slaves_active", "tlb_dynamic_lb", "use_carrier", "balance-slb")})
    options.update({"ad_actor_system": ["02:00:00:00:00:01"], "primary": ["e0"]})
    watched = ({}, {"miimon": 100}, {"arp_interval": 100, "arp_ip_target": "192.0.2.1,192.0.2.2"})
    for mode, (key, values), more in itertools.product(controllers.MODES, options.items(), watched):
        for value in values:
            section = {"mode": mode, "options": {**more, key: value}, "port": ["e0", "e1"]}
            yield {"name": "b0", "type": "bond", "link-aggregation": section}
    bridges = {key: [low, high] for key, (_name, low, high) in controllers._BRIDGE_NUMBERS.items() if key != "hash-max"}
    bridges.update({key: [True, False] for key in controllers._BRIDGE_FLAGS})
    bridges.update({"hash-max": [1, 2**31], "multicast-router": [0, 1, 2], "group-forward-mask": [0, 65528]})
    for key, values in bridges.items():
        for value in values:
            yield {"name": "br0", "type": "linux-bridge", "bridge": {"options": {key: value}}}
    for enabled, (key, ends) in itertools.product((True, False), controllers._STP.items()):
        for value in ends:
            section = {"options": {"stp": {"enabled": enabled, key: value}}}
            yield {"name": "br0", "type": "linux-bridge", "bridge": section}


def test_what_our_limits_allow_network_manager_allows():
    files, refused = {}, 0
    for document in limits():
        try:
            made = nmstate.keyfiles({"interfaces": [document]})
        except ImageError:
            refused += 1
        else:
            files[json.dumps(document)] = made[document["name"] + ".nmconnection"]
    complaints = {name: one for name, one in read(files).items() if "error" in one or one["warnings"] or one["unknown"]}
    assert complaints == {}
    assert len(files) > 400
    assert refused > 100
