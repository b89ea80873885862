# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of a rescue, and which program of a new system gets it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import (
    post_install,
    system_network,
)
from tests.folders import put_files, put_programs
from tests.unit.installimage import parts

V4 = {"family": "inet", "local": "203.0.113.20", "prefixlen": 26, "scope": "global"}
V6 = {"family": "inet6", "local": "2001:db8:1::2", "prefixlen": 64, "scope": "global"}
LINK = {"family": "inet6", "local": "fe80::1234", "prefixlen": 64, "scope": "link"}
ETH0 = {"ifname": "eth0", "address": "52:54:00:AA:00:01", "addr_info": [V4, V6, LINK]}
LO = {"ifname": "lo", "address": "00:00:00:00:00:00", "addr_info": [{**V4, "local": "127.0.0.1", "scope": "host"}]}
BY_V4 = {"dst": "default", "gateway": "203.0.113.1", "dev": "eth0"}
BY_V6 = {"dst": "default", "gateway": "fe80::1", "dev": "eth0"}


def rescue(links=(LO, ETH0), v4=(BY_V4,), v6=(BY_V6,)):
    """Answers of ``ip`` in a rescue."""

    def run(argv):
        if "address" in argv:
            return 0, json.dumps(list(links)), ""
        return 0, json.dumps(list(v6 if "-6" in argv else v4)), ""

    return run


@pytest.fixture
def resolvers(tmp_path):
    first, second = tmp_path / "resolv.conf", tmp_path / "uplink.conf"
    first.write_text("nameserver 127.0.0.53\n")
    second.write_text("# x\nnameserver 185.12.64.1\nnameserver 2a01:4ff:ff00::add:1\nnameserver fe80::2\n")
    return first, second


def test_what_a_rescue_has(resolvers):
    found = system_network.read(rescue(), resolvers=resolvers)
    assert found == (
        "52:54:00:aa:00:01",
        {4: "203.0.113.20/26", 6: "2001:db8:1::2/64"},
        {4: "203.0.113.1", 6: "fe80::1"},
        ["185.12.64.1", "2a01:4ff:ff00::add:1"],
    )
    assert system_network.read(rescue(), ipv4_only=True, resolvers=resolvers) == (
        found.mac, {4: "203.0.113.20/26"}, {4: "203.0.113.1"}, ["185.12.64.1"],
    )  # fmt: skip
    assert system_network.read(rescue(v4=()), resolvers=()) == (found.mac, {6: "2001:db8:1::2/64"}, {6: "fe80::1"}, [])


@pytest.mark.parametrize(
    "run",
    [
        rescue(v4=(), v6=()),
        rescue(links=(LO,)),
        rescue(links=({**ETH0, "address": None},)),
        rescue(links=({**ETH0, "addr_info": [{**V4, "local": "10.0.0.5"}]},)),
        rescue(links=({**ETH0, "addr_info": [{**V4, "local": "203.0.113.999"}]},)),
        rescue(links=({**ETH0, "addr_info": None},)),
        rescue(v4=({**BY_V4, "gateway": "[]"},), v6=()),
        rescue(v4=({"dst": "default", "dev": "eth0"},), v6=()),
        lambda argv: (127, "", "no such program"),
        lambda argv: (0, "[" * 100000, ""),
        lambda argv: (0, '{"a": 1}', ""),
    ],
)
def test_a_rescue_without_a_network_of_its_server_reports_nothing(run, resolvers):
    assert system_network.read(run, resolvers=resolvers) is None


NETWORKD = """\
# written by kubenode.provision: the network that the rescue had
[Match]
MACAddress=52:54:00:aa:00:01
Type=ether
Kind=!vlan !bridge !bond !team !macvlan !macvtap !ipvlan

[Network]
DNS=185.12.64.1
Address=203.0.113.20/32
Address=2001:db8:1::2/64

[Route]
Gateway=203.0.113.1
GatewayOnLink=yes

[Route]
Gateway=fe80::1
"""
KEYFILE = """\
# written by kubenode.provision: the network that the rescue had
[connection]
id=kubenode
type=ethernet
autoconnect-priority=100

[ethernet]
mac-address=52:54:00:aa:00:01

[ipv4]
method=manual
address1=203.0.113.20/32
gateway=203.0.113.1
dns=185.12.64.1;

[ipv6]
method=manual
address1=2001:db8:1::2/64
gateway=fe80::1
"""
FOUND = system_network.Network(
    "52:54:00:aa:00:01",
    {4: "203.0.113.20/26", 6: "2001:db8:1::2/64"},
    {4: "203.0.113.1", 6: "fe80::1"},
    ["185.12.64.1"],
)


def test_neighbours_are_reached_through_the_gateway():
    assert system_network.networkd(FOUND) == NETWORKD
    assert system_network.keyfile(FOUND) == KEYFILE
    alone = FOUND._replace(addresses={4: FOUND.addresses[4]}, gateways={4: FOUND.gateways[4]})
    assert system_network.keyfile(alone).endswith("[ipv6]\nmethod=auto\n")
    alone = FOUND._replace(addresses={6: FOUND.addresses[6]}, gateways={6: "2001:db8::1"})
    assert "Gateway=2001:db8::1\nGatewayOnLink=yes" in system_network.networkd(alone)
    assert "[ipv4]\nmethod=disabled\n" in system_network.keyfile(alone)


# --- in the new system

INTERFACES = """\
### Hetzner Online GmbH installimage

auto enp1s0
iface enp1s0 inet static
  address 203.0.113.20
  netmask 255.255.255.192
  gateway 203.0.113.1
  # route 203.0.113.0/26 via 203.0.113.1
  up route add -net 203.0.113.0 netmask 255.255.255.192 gw 203.0.113.1 dev enp1s0
"""
OURS = "### Hetzner Online GmbH installimage\n"
MENDED = INTERFACES.replace(
    "up route add -net 203.0.113.0 netmask 255.255.255.192 gw 203.0.113.1 dev enp1s0",
    "up ip route prepend 203.0.113.0/26 via 203.0.113.1 dev enp1s0",
)
NETWORKD_FILE = "etc/systemd/network/05-kubenode.network"
KEYFILE_FILE = "etc/NetworkManager/system-connections/kubenode.nmconnection"
NO_CLOUD = "etc/cloud/cloud.cfg.d/zz-kubenode-network.cfg"
CLOUD = {"etc/cloud/cloud.cfg": "users: []\n"}
IFCFG = {"etc/sysconfig/network-scripts/ifcfg-eth0": OURS}
PLUGIN = {"usr/lib64/NetworkManager/1.40/libnm-settings-plugin-ifcfg-rh.so": "x"}


def settled(top, files, programs=(), services=()):
    """Run the part in a system with these files, programs and services that are on; what it said and wrote."""
    put_files(top, files)
    on = "|".join(f"{service}.service" for service in services) or "none"
    systemctl = (
        f'[ "$1" = is-enabled ] || {{ echo "$*" >>{top}/systemctl; exit 0; }}\ncase $3 in {on}) exit 0 ;; esac\nexit 1'
    )
    own = put_programs(top / "programs", {**dict.fromkeys(programs, ""), "systemctl": systemctl})
    for name in ("awk", "base64", "cat", "chmod", "find", "grep", "mkdir", "mv", "sed"):
        (own / name).symlink_to(subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout[:-1])
    said = parts.said(top, post_install.network_part(FOUND), str(own)).strip()
    written = {
        path: (top / path).read_text() for path in (NETWORKD_FILE, KEYFILE_FILE, NO_CLOUD) if (top / path).exists()
    }
    return said, written


DISABLED = {NO_CLOUD: "# written by kubenode.provision\nnetwork: {config: disabled}\n"}


def test_a_system_with_networkd_gets_a_file_also_beside_others_of_installimage(tmp_path):
    files = {**CLOUD, "etc/network/interfaces": INTERFACES}
    said, written = settled(tmp_path, files, services=["systemd-networkd"])
    assert said == "network systemd-networkd"
    assert written == {NETWORKD_FILE: NETWORKD, **DISABLED}
    assert not (tmp_path / "systemctl").exists()


def test_a_system_with_netplan_that_installimage_wrote_nothing_for_gets_networkd(tmp_path):
    said, written = settled(tmp_path, CLOUD, programs=["netplan"])
    assert (said, set(written)) == ("network systemd-networkd", {NETWORKD_FILE, NO_CLOUD})
    assert (tmp_path / "systemctl").read_text() == "enable --quiet systemd-networkd.service\n"


def test_a_system_with_networkmanager_gets_a_private_keyfile(tmp_path):
    # of the RHEL family from 10 on: no plugin reads what installimage writes
    said, written = settled(tmp_path, {**CLOUD, **IFCFG}, services=["NetworkManager"])
    assert said == "network NetworkManager"
    assert written == {KEYFILE_FILE: KEYFILE, **DISABLED}
    assert os.stat(tmp_path / KEYFILE_FILE).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("files", "programs", "services"),
    [
        ({"etc/network/interfaces": INTERFACES}, ["ifup", "route"], ["networking", "systemd-networkd"]),
        ({"etc/netplan/01-netcfg.yaml": OURS}, ["netplan"], ["systemd-networkd"]),
        ({"etc/systemd/network/10-enp1s0.network": OURS}, [], ["systemd-networkd"]),
        ({**IFCFG, **PLUGIN}, [], ["NetworkManager"]),
        (IFCFG, [], []),
        ({"etc/sysconfig/network/ifcfg-eth0": OURS}, [], []),
    ],
)
def test_what_installimage_wrote_is_where_a_program_reads_it(tmp_path, files, programs, services):
    said, written = settled(tmp_path, {**CLOUD, **files}, programs, services)
    assert (said, written) == ("network installimage", DISABLED)
    for path, content in files.items():
        assert (tmp_path / path).read_text() == content


def test_the_route_to_the_neighbours_needs_no_net_tools(tmp_path):
    files = {"etc/network/interfaces": INTERFACES}
    said, written = settled(tmp_path, files, ["ifup"], ["networking"])
    assert (said, written) == ("network installimage", {})
    assert (tmp_path / "etc/network/interfaces").read_text() == MENDED


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ("network: {version: 2, ethernets: {}}\n", True),
        ("a: 1\nnetwork:\n  version: 2\n", True),
        ("network: {config: disabled}\n", False),
        ("network:\n  config: disabled\n", False),
        ("#network:\n", False),
    ],
)
def test_the_source_of_the_network_for_cloud_init_decides(tmp_path, config, left):
    files = {"etc/cloud/cloud.cfg": "x: 1\n", "etc/cloud/cloud.cfg.d/50-own.cfg": config}
    said, written = settled(tmp_path, files, services=["systemd-networkd"])
    assert (said == "", written == {}) == (left, left)


def test_a_system_without_a_known_program_is_reported(tmp_path):
    said, written = settled(tmp_path, CLOUD)
    assert (said.startswith("warning the image has no program"), written) == (True, {})


def test_the_part_is_left_out_on_request():
    spec = {"post_install_script": "", "bootstrap_data": None, "crypt_password": "", "swraid": 0, "hostname": "n"}
    assert "05-kubenode.network" not in post_install.script(spec, "n", "i", {}, ["/dev/sda"], False)
    assert "05-kubenode.network" in post_install.script(spec, "n", "i", {}, ["/dev/sda"], False, FOUND)
