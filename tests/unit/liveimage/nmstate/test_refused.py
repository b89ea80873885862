# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no keyfile can be made of is refused with its path, before anything is written."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate import keyfiles, parse

STATIC = "ipv4: {enabled: true, address: [{ip: 192.0.2.2, prefix-length: 24}]}"


def iface(rest: str) -> str:
    return "interfaces: [{name: eth0, %s}]" % rest


def bond(options: str, mode: str = "active-backup", more: str = "") -> str:
    return "interfaces: [{name: b0, type: bond, %s link-aggregation: {mode: %s, options: {%s}, port: [e0, e1]}}]" % (
        more, mode, options)  # fmt: skip


def bridge(port: str, options: str = "") -> str:
    return "interfaces: [{name: br0, type: linux-bridge, bridge: {options: {%s}, port: [{name: e0, %s}]}}]" % (
        options, port)  # fmt: skip


def route(rest: str, more: str = STATIC) -> str:
    return "interfaces: [{name: eth0, %s}, {name: down0, state: down}]\nroutes: {config: [{%s}]}" % (more, rest)


def rule(rest: str) -> str:
    return "interfaces: [{name: eth0, %s}]\nroute-rules: {config: [{%s}]}" % (STATIC, rest)


def dns(rest: str, more: str = STATIC) -> str:
    return "interfaces: [{name: eth0, %s}]\ndns-resolver: {config: {%s}}" % (more, rest)


def macsec(rest: str) -> str:
    return iface("type: macsec, macsec: {base-iface: eth1, %s}" % rest)


CAK = "50b71a8ef0bd5751ea76de6d6c98c03a"
CASES = {
    # unknown keys, with the nearest known one
    "interfacs: []": "interfacs: unknown key; did you mean interfaces?",
    "zebra: []": "zebra: unknown key; known are ",
    iface("ipv4: {enabled: true, dchp: true}"): "interfaces[0].ipv4.dchp: unknown key; did you mean dhcp?",
    iface("mut: 1500"): "interfaces[0].mut: unknown key; did you mean mtu?",
    bond("mimon: 100"): "interfaces[0].link-aggregation.options.mimon: unknown key; did you mean miimon?",
    bridge("stp-cost: 1"): "interfaces[0].bridge.port[0].stp-cost: unknown key; did you mean stp-path-cost?",
    route("destination: 0.0.0.0/0, next-hop-iface: eth0"): "routes.config[0].next-hop-interface is missing",
    route("destination: 0.0.0.0/0, next-hop-interface: eth0, metrik: 1"): "metrik: unknown key; did you mean metric?",
    # kinds of values
    "interfaces: {}": "interfaces: a mapping is no list",
    "interfaces: [eth0]": "interfaces[0]: eth0 is no mapping",
    iface("mtu: big"): "interfaces[0].mtu: big is no whole number",
    iface("mtu: 67"): "interfaces[0].mtu: 67 is not within 68 to 65535",
    iface("ipv4: {enabled: maybe}"): "interfaces[0].ipv4.enabled: maybe is neither true nor false",
    iface("state: sideways"): "interfaces[0].state: sideways is not one of up, down, absent, ignore",
    iface("description: [a]"): "interfaces[0].description: a list is no text",
    iface('description: "a\\nmethod=manual"'): "interfaces[0].description: 'a\\nmethod=manual' has a line break",
    # names
    "interfaces: [{type: ethernet}]": "interfaces[0].name is missing",
    "interfaces: [{name: ../x}]": "interfaces[0].name: ../x is no name for an interface",
    "interfaces: [{name: .hidden}]": "interfaces[0].name: .hidden is no name",
    "interfaces: [{name: sixteen-letters0}]": "is no name for an interface",
    "interfaces: [{name: lo}]": "interfaces[0].name: lo is no name",
    "interfaces: [{name: 'a b'}]": "interfaces[0].name: 'a b' is no name",
    iface("profile-name: a/b"): "interfaces[0].profile-name: a/b is no name for a profile",
    "interfaces: [{name: a}, {name: a}]": "interfaces[1].name: a is given twice",
    "interfaces: [{name: a, state: absent}, {name: a}]": "interfaces[1].name: a is given twice",
    "interfaces: [{name: a, profile-name: b}, {name: b}]": "interfaces[1].profile-name: b is given twice",
    # what has no place in a live image
    "capture: {a: b}": "capture is not supported: a policy",
    "desiredState: {interfaces: []}": "desiredState is not supported: a policy",
    "ovs-db: {a: b}": "ovs-db is not supported: NetworkManager has no keys for Open vSwitch as a whole",
    # Open vSwitch
    iface("type: ovs-port"): "interfaces[0].type: ovs-port is not supported: ports are listed in the section bridge",
    iface("type: ovs-interface"): "interfaces[0]: no ovs-bridge of this document has eth0 among its ports",
    "interfaces: [{name: a, type: ovs-interface, dpdk: {devargs: c, n_rxq: 1, rx-queue: 1}}]": "n_rxq are the same",
    iface("ovs-db: {external_ids: {a: b}}"): "interfaces[0].ovs-db has a meaning only for an ovs-bridge",
    iface("type: ovs-bridge, ovs-db: {external_ids: {'a=b': c}}"): "ovs-db.external_ids: 'a=b' is no key",
    iface("type: ovs-bridge, ipv4: {enabled: true, dhcp: true}"): "interfaces[0] is an ovs-bridge and has addresses",
    iface("type: ovs-bridge, bridge: {options: {fail-mode: never}}"): "options.fail-mode: never is not one of",
    iface("type: ovs-bridge, bridge: {port: [{name: a, link-aggregation: {mode: lacp, port: [{name: b}]}}]}"):
        "port[0].link-aggregation: a bond of Open vSwitch has two ports or more",
    iface("type: ovs-bridge, bridge: {port: [{name: a, vlan: {trunk-tags: [{}]}}]}"): "give id or id-range",
    "interfaces: [{name: a, type: ovs-bridge, bridge: {port: [{name: c}]}}, {name: c, %s}]" % STATIC:
        "interfaces[1] has addresses, yet is a port of a; give them to an ovs-interface",
    "interfaces: [{name: a, type: ovs-bridge, bridge: {port: [{name: c}]}}, {name: b, type: ovs-bridge,"
    " bridge: {port: [{name: c}]}}, {name: c}]": "interfaces[1].bridge.port[0]: c is a port of two bridges",
    "interfaces: [{name: a, type: ovs-interface, patch: {peer: b}, dpdk: {devargs: c}}]": "exclude each other",
    iface("type: ipsec"): "interfaces[0].type: ipsec is not supported: NetworkManager does not start such a profile",
    iface("type: team"): "interfaces[0].type: team is not supported: its program is in no live image; use a bond",
    iface("type: ethrnet"): "interfaces[0].type: ethrnet is not one of ethernet, bond",
    # cards
    iface("802.1x: {identity: a}"): "interfaces[0].802.1x.eap-methods is missing; give one or more of leap",
    iface("802.1x: {eap-methods: [lte]}"): "interfaces[0].802.1x.eap-methods: a list has 'lte', which is not one of",
    iface("802.1x: {eap-methods: [tls], private-key: key.pem}"): "802.1x.private-key: key.pem is no absolute path",
    iface("802.1x: {eap-methods: [tls], ca-cert: '/a;/b'}"): "802.1x.ca-cert: '/a;/b' is no absolute path",
    iface("802.1x: {eap-methods: [md5], password: <_password_hid_by_nmstate>}"): "password was hidden by nmstatectl",
    iface("802.1x: {eap-methods: [md5], phase2-auth: x}"): "802.1x.phase2-auth: x is not one of pap",
    iface("802.1x: {eap-methods: [md5], pasword: x}"): "802.1x.pasword: unknown key; did you mean password?",
    iface("ethtool: {feature: {warp: true}}"): "interfaces[0].ethtool.feature.warp is no feature",
    iface("ethtool: {feature: {rx-gro: fast}}"): "interfaces[0].ethtool.feature.rx-gro: fast is neither true nor",
    iface("ethtool: {pause: {rx: true}}"): "interfaces[0].ethtool.pause.autoneg is missing",
    iface("ethtool: {ring: {rx: -1}}"): "interfaces[0].ethtool.ring.rx: -1 is not within",
    iface("ethtool: {coalesce: {rx-usec: 1}}"): "coalesce.rx-usec: unknown key; did you mean rx-usecs?",
    iface("ethtool: {channels: {rx: 1}}"): "interfaces[0].ethtool.channels: unknown key",
    iface("ethernet: {sr-iov: {total-vfs: 1, vfs: [{id: 1}]}}"): "sr-iov.vfs[0].id: 1 is not below the total-vfs of 1",
    iface("ethernet: {sr-iov: {vfs: [{id: 1}, {id: 1}]}}"): "sr-iov.vfs[1].id: 1 is given twice",
    iface("ethernet: {sr-iov: {vfs: [{id: 0, vlan-proto: 802.1ad}]}}"): "vfs[0].vlan-proto: 802.1ad needs vlan-id or",
    iface("copy-mac-from: eth1"): "interfaces[0].copy-mac-from: eth1 has a meaning only for bond",
    bond("", more="copy-mac-from: e0,"): "interfaces[0].copy-mac-from: the MAC address of e0 is not known before",
    bond("", more="copy-mac-from: e0, mac-address: 52:54:00:12:34:56,"): "e0 and mac-address exclude each other",
    # kinds with a base interface
    iface("type: macsec"): "interfaces[0].macsec is missing; type macsec needs it",
    macsec("mka-ckn: ab12"): "interfaces[0].macsec.mka-cak is missing; MACsec needs mka-cak and mka-ckn",
    macsec(f"mka-cak: {CAK}"): "interfaces[0].macsec.mka-ckn is missing",
    macsec(f"mka-cak: {CAK}, mka-ckn: abc"): "interfaces[0].macsec.mka-ckn: abc is no name of 2 to 64 hexadecimal",
    macsec("mka-cak: abcd, mka-ckn: ab12"): "interfaces[0].macsec.mka-cak is no key of 32 hexadecimal digits",
    macsec("mka-cak: <_password_hid_by_nmstate>, mka-ckn: ab"): "interfaces[0].macsec.mka-cak was hidden by nmstatectl",
    macsec(f"mka-cak: {CAK}, mka-ckn: ab, port: 65535"): "interfaces[0].macsec.port: 65535 is not within 0 to 65534",
    macsec(f"mka-cak: {CAK}, mka-ckn: ab, validation: on"): "macsec.validation: on is not one of disabled, check",
    "interfaces: [%s, %s]" % tuple("{name: m%d, type: macsec, macsec: {base-iface: e, mka-cak: %s, mka-ckn: ab}}" % (
        number, CAK) for number in (0, 1)): "interfaces[0]: MACsec 1 of e is m1 already",
    iface("type: hsr, hsr: {port1: a}"): "interfaces[0].hsr.port2 is missing",
    iface("type: hsr, hsr: {port1: a, port2: a}"): "interfaces[0].hsr.port2: a is port1, too",
    iface("type: hsr, hsr: {port1: a, port2: eth0}"): "interfaces[0] stands on itself: eth0 → eth0",
    "interfaces: [{name: h, type: hsr, hsr: {port1: a, port2: b}}, {name: b, state: absent}]": "hsr.port2: b is absent",
    "interfaces: [{name: h, type: hsr, hsr: {port1: a, port2: b}}, {name: b, identifier: mac-address,"
    " mac-address: 52:54:00:12:34:56}]": "hsr.port2: b goes by its MAC or PCI address",
    iface("type: ipvlan"): "interfaces[0].ipvlan is missing",
    iface("type: ipvlan, ipvlan: {base-iface: a, mode: l4}"): "interfaces[0].ipvlan.mode: l4 is not one of l2, l3, l3s",
    iface("type: ipvlan, ipvlan: {base-iface: a, private: true, vepa: true}"): "ipvlan.private and vepa exclude each",
    iface("type: loopback"): "interfaces[0].name: eth0 is no loopback interface; its name is lo",
    "interfaces: [{name: lo, type: loopback, ipv4: {enabled: false}}]": "ipv4.enabled: false has no meaning for type",
    "interfaces: [{name: lo, type: loopback, ipv4: {dhcp: true}}]": "interfaces[0].ipv4.dhcp: unknown key",
    "interfaces: [{name: lo, type: loopback, accept-all-mac-addresses: true}]": "has no meaning for type loopback",
    iface("identifier: pci-address"): "interfaces[0].pci-address is missing; identifier: pci-address needs it",
    iface("identifier: pci-address, pci-address: '0:1f.6'"): "pci-address: 0:1f.6 is no PCI address such as 0000:00",
    "interfaces: [{name: a, identifier: pci-address, pci-address: '0000:00:1f.6'}, {name: b, identifier: pci-address,"
    " pci-address: '0000:00:1f.6'}]": "interfaces[1].pci-address: 0000:00:1f.6 identifies a already",
    iface("mptcp: {address-flags: [fast]}"): "mptcp.address-flags: a list has 'fast', which is not one of signal",
    iface("ipv4: {enabled: true, mptcp-flags: [signal]}"): "ipv4.mptcp-flags is not supported: give address-flags",
    iface("type: infiniband"): "interfaces[0].infiniband is missing; type infiniband needs it",
    iface("type: infiniband, infiniband: {mode: datagram, pkey: 0x8001}"): "infiniband.base-iface is missing; pkey",
    iface("type: infiniband, infiniband: {mode: datagram, base-iface: ib0}"): "infiniband.pkey is missing; base-iface",
    iface("type: infiniband, infiniband: {pkey: 0x8001, base-iface: ib0}"): "infiniband.mode is missing",
    iface("type: vxlan, vxlan: {base-iface: eth1}"): "interfaces[0].vxlan.id is missing",
    iface("type: vxlan, vxlan: {id: 5, remote: x}"): "interfaces[0].vxlan.remote: x is no IP address",
    iface("type: mac-vlan, mac-vlan: {base-iface: eth1}"): "interfaces[0].mac-vlan.mode is missing",
    iface("type: mac-vtap, mac-vtap: {base-iface: eth1, mode: bridge, promiscuous: false}"): "mode passthru only",
    iface("type: vrf, vrf: {port: [eth1]}"): "interfaces[0].vrf.route-table-id is missing",
    iface("type: vrf, vrf: {route-table-id: 5, port: [a, a]}"): "interfaces[0].vrf.port[1]: a is listed twice",
    route("destination: 0.0.0.0/0, next-hop-interface: eth0, vrf-name: v"): "vrf-name: v is no VRF of this document",
    # kinds and their sections
    "interfaces: [{name: b, type: bond}]": "interfaces[0].link-aggregation is missing; type bond needs it",
    "interfaces: [{name: v, vlan: {base-iface: a, id: 1}}]": "interfaces[0].type is missing; it is vlan",
    iface("type: dummy, vlan: {base-iface: a, id: 1}"): "interfaces[0].vlan has no meaning for type dummy",
    iface("type: vlan, vlan: {base-iface: a}"): "interfaces[0].vlan.id is missing",
    iface("type: vlan, vlan: {base-iface: a, id: 4095}"): "interfaces[0].vlan.id: 4095 is not within 0 to 4094",
    iface("type: vlan, vlan: {base-iface: eth0, id: 4}"): "interfaces[0] stands on itself: eth0 → eth0",
    iface("type: veth, veth: {peer: eth0}"): "interfaces[0].veth.peer: eth0 is the interface itself",
    "interfaces: [{name: a, type: veth, veth: {peer: b}}, {name: b}]": "veth.peer: b is not the other end",
    # MAC addresses and MTU
    iface("mac-address: 52:54:00:12:34"): "interfaces[0].mac-address: 52:54:00:12:34 is no MAC address",
    iface("mac-address: 01:00:5e:00:00:01"): "interfaces[0].mac-address: 01:00:5E:00:00:01 is no address of a single",
    iface("identifier: mac-address"): "interfaces[0].mac-address is missing; identifier: mac-address needs it",
    iface("type: dummy, identifier: mac-address, mac-address: 52:54:00:12:34:56"): "is only for interfaces of type",
    "interfaces: [{name: a, identifier: mac-address, mac-address: 52:54:00:12:34:56},"
    " {name: b, identifier: mac-address, mac-address: 52-54-00-12-34-56}]": "identifies a already",
    iface("mtu: 1000, ipv6: {enabled: true}"): "interfaces[0].mtu: 1000 is less than 1280",
    "interfaces: [{name: v, type: vlan, mtu: 9000, vlan: {base-iface: e, id: 1}}, {name: e, mtu: 1500}]":
        "interfaces[0].mtu: 9000 is more than the 1500 of e",
    # addresses
    iface("ipv4: {address: [{ip: 192.0.2.2, prefix-length: 24}]}"): "interfaces[0].ipv4.enabled is missing",
    iface("ipv4: {enabled: false, dhcp: true}"): "interfaces[0].ipv4.enabled is false, yet",
    iface("ipv4: {enabled: true, address: [{ip: 192.0.2.2}]}"): "ipv4.address[0].prefix-length is missing",
    iface("ipv4: {enabled: true, address: [{ip: 192.0.2.2, prefix-length: 33}]}"): "33 is not within 0 to 32",
    iface("ipv4: {enabled: true, address: [{ip: 192.0.2.256, prefix-length: 3}]}"): "192.0.2.256 is no IP address",
    iface("ipv4: {enabled: true, address: [{ip: '2001:db8::1', prefix-length: 3}]}"): "is no IPv4 address",
    iface("ipv6: {enabled: true, address: [{ip: 192.0.2.2, prefix-length: 24}]}"): "is no IPv6 address",
    iface("ipv6: {enabled: true, address: [{ip: 'fe80::1%eth0', prefix-length: 64}]}"): "has a zone",
    iface("ipv4: {enabled: true, address: [{ip: 224.0.0.1, prefix-length: 24}]}"): "224.0.0.1 is no address of a host",
    iface("ipv4: {enabled: true, address: [{ip: 192.0.2.2, prefix-length: 24}, {ip: 192.0.2.2, prefix-length: 25}]}"):
        "interfaces[0].ipv4.address[1].ip: 192.0.2.2 is given twice",
    "interfaces: [{name: a, %s}, {name: b, %s}]" % (STATIC, STATIC): "interfaces[1].ipv4: 192.0.2.2 is also given to a",
    iface("ipv6: {enabled: true, autoconf: true}"): "interfaces[0].ipv6.autoconf: true needs dhcp: true",
    iface("ipv6: {enabled: true, dhcp: true, autoconf: true, token: '2001::1'}"): "interfaces[0].ipv6.token",
    iface("ipv6: {enabled: true, token: '::1'}"): "needs addr-gen-mode eui64 and autoconf",
    iface(f"ipv4: {{enabled: true, dhcp: true, dhcp-custom-hostname: {'a.' * 127}a}}"): "is no host name",
    iface("ipv4: {enabled: true, dhcp: true, dhcp-client-id: 'a b'}"): "ipv4.dhcp-client-id: 'a b' is not",
    iface("ipv4: {enabled: true, autoconf: true}"): "interfaces[0].ipv4.autoconf: unknown key",
    # controllers and ports
    "interfaces: [{name: a, controller: b}]": "interfaces[0].controller: b is no bond, bridge or VRF",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [c]}}, {name: a, controller: b}]":
        "interfaces[1].controller: b does not list a among its ports",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [a]}},"
    " {name: c, type: linux-bridge, bridge: {port: [{name: a}]}}]":
        "interfaces[1].bridge.port[0]: a is already a port of b",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [a, a]}}]": "a is listed twice",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [b]}}]": "b (bond) cannot be a port",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [a]}}, {name: a, %s}]" % STATIC:
        "interfaces[1].ipv4 is enabled, yet a is a port of b",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [a]}}, {name: a, state: absent}]":
        "a is a port here and absent elsewhere",
    "interfaces: [{name: v, type: vlan, vlan: {base-iface: a, id: 2}}, {name: a, state: absent}]": "a is absent",
    bond("balance_slb: true"): "options.balance_slb: true needs mode balance-xor",
    bond("balance_slb: true, balance-slb: true"): "options.balance-slb are the same",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [a], ports: [a]}}]": "are the same; give one",
    "interfaces: [{name: b, type: bond, link-aggregation: {mode: 1, port: [v]}},"
    " {name: v, type: vlan, vlan: {base-iface: b, id: 2}}]": "stands on itself",
    "interfaces: [{name: v, type: vlan, vlan: {base-iface: e, id: 2}}, {name: w, type: vlan,"
    " vlan: {base-iface: e, id: 2}}]": "VLAN 2 of e is",
    # bonds
    bond("", "roundrobin"): "interfaces[0].link-aggregation.mode: roundrobin is not one of balance-rr",
    bond("miimon: 100, arp_interval: 100, arp_ip_target: 192.0.2.1"): "exclude each other",
    bond("lacp_rate: fast"): "lacp_rate: fast has no meaning in mode active-backup, only in 802.3ad",
    bond("updelay: 100"): "options.updelay needs miimon",
    bond("arp_interval: 100"): "options.arp_interval needs arp_ip_target",
    bond("primary: e7"): "options.primary: e7 is no port of this bond",
    bond("primary: e0", "802.3ad"): "primary: e0 has no meaning in mode 802.3ad",
    bond("num_grat_arp: 1, num_unsol_na: 2"): "are one setting",
    bond("fail_over_mac: active", more="mac-address: 52:54:00:12:34:56,"): "leaves the bond without a MAC address",
    bond("xmit_hash_policy: 9"): "xmit_hash_policy: 9 is not one of layer2",
    # bridges
    bridge("vlan: {mode: access, trunk-tags: [{id: 4}]}"): "access ports have one tag",
    bridge("vlan: {mode: trunk, tag: 4}"): "needs enable-native: true",
    bridge("vlan: {mode: trunk, trunk-tags: [{id: 4}, {id-range: {min: 2, max: 9}}]}"): "VLAN 4 is given twice",
    bridge("vlan: {mode: trunk, trunk-tags: [{id-range: {min: 9, max: 2}}]}"): "min the smaller one",
    bridge("vlan: {mode: trunk, trunk-tags: [{}]}"): "trunk-tags[0]: give id or id-range",
    bridge("vlan: {mode: trunk, trunk-tags: [{id: 1, id-range: {min: 2, max: 3}}]}"): "trunk-tags[0]: give id or",
    bridge("vlan: {tag: 3}"): "interfaces[0].bridge.port[0].vlan.mode is missing",
    bridge("stp-priority: 64"): "stp-priority: 64 is not within 0 to 63",
    bridge("", "stp: {forward-delay: 31}"): "stp.forward-delay: 31 is not within 2 to 30",
    bridge("", "hash-max: 1000"): "hash-max: 1000 is no power of two",
    bridge("", "group-addr: 01:80:C2:00:00:01"): "group-addr: 01:80:C2:00:00:01 is not 01:80:C2:00:00:0X",
    bridge("", "group-forward-mask: 1"): "lowest bits",
    # routes
    route("destination: 0.0.0.0/0, next-hop-interface: eth9"): "eth9 is no interface of this document that is up",
    route("destination: 0.0.0.0/0, next-hop-interface: down0"): "down0 is no interface of this document that is up",
    route("destination: '::/0', next-hop-interface: eth0"): "next-hop-interface: eth0 has no IPv6",
    route("destination: 0.0.0.0/0, next-hop-iface: eth0, state: absent"): "next-hop-iface: unknown key; did you mean",
    route("destination: 0.0.0.0/0, next-hop-interface: eth0, next-hop-address: '2001:db8::1'"): "is no IPv4 address",
    route("destination: 0.0.0.0/33, next-hop-interface: eth0"): "has no prefix length of 0 to 32",
    route("destination: 0.0.0.0/255.0.0.0, next-hop-interface: eth0"): "has no prefix length of 0 to 32",
    route("next-hop-interface: eth0"): "routes.config[0].destination is missing",
    route("destination: 10.0.0.0/8, next-hop-interface: eth0}, {destination: 10.0.0.1/8, next-hop-interface: eth0"):
        "routes.config[1]: the route to 10.0.0.0/8 is given twice",
    # rules
    rule("ip-from: 192.0.2.0/24, ip-to: '2001:db8::/32'"): "route-rules.config[0]: IPv4 and IPv6 in one rule",
    rule("ip-from: 192.0.2.0/24, family: ipv6"): "IPv4 and IPv6 in one rule",
    rule("ip-from: '2001:db8::/32'"): "no interface that is up has IPv6",
    rule("state: absent, table: 5"): "route-rules.config[0].table: unknown key; did you mean route-table?",
    rule("fwmark: 0x30z"): "route-rules.config[0].fwmark: 0x30z is no whole number",
    rule("fwmark: 0x1ffffffff"): "route-rules.config[0].fwmark: 0x1ffffffff is not within",
    rule("fwmask: 1"): "route-rules.config[0].fwmark is missing",
    # name servers
    dns("server: [localhost]"): "dns-resolver.config.server[0]: localhost is no IP address",
    dns("server: ['2001:db8::1']"): "no interface that is up has static or automatic IPv6",
    dns("server: [192.0.2.1]", "ipv4: {enabled: false}"): "no interface that is up has static or automatic IPv4,",
    dns("server: ['fe80::1']"): "needs its interface",
    dns("server: ['fe80::1%eth7']"): "no link-local address on an interface of this document",
    dns("server: ['fe80::1%eth0']"): "eth0 has no IPv6",
    dns("server: [192.0.2.1, 192.0.2.1]"): "dns-resolver.config.server[1]: 192.0.2.1 is given twice",
    dns("server: [192.0.2.1, '::5', 192.0.2.2]"): "list all servers of one IP version before",
    dns("search: ['a;b']"): "dns-resolver.config.search[0]: 'a;b' is no domain",
    dns("options: ['debug;x']"): "dns-resolver.config.options[0]: 'debug;x' is no option",
    dns("search: [example.com]", "ipv4: {enabled: false}"): "so it has no place",
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), CASES.items())
def test_refused_with_its_path(text, reason):
    document = parse(text)
    with pytest.raises(ImageError) as caught:
        keyfiles(document)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "value",
    [object(), 1.5, b"a", {1: 2}, [[]], float("nan"), 10**5000, {"name": {}}],
    ids=lambda one: type(one).__name__,
)
def test_values_that_no_text_can_hold(value):
    for document in (value, {"interfaces": value}, {"interfaces": [value]}, {"interfaces": [{"name": value}]},
                     {"interfaces": [{"name": "eth0", "mtu": value}]}):  # fmt: skip
        with pytest.raises(ImageError):
            keyfiles(document)


@pytest.mark.parametrize("secret", ['"two\\nlines-of-a-secret"', "[lines-of-a-secret]", "{a: lines-of-a-secret}"])
def test_passwords_are_in_no_message(secret):
    for key, text in (
        ("802.1x.password", iface("802.1x: {eap-methods: [md5], password: %s}" % secret)),
        ("802.1x.private-key-password", iface("802.1x: {eap-methods: [md5], private-key-password: %s}" % secret)),
        ("macsec.mka-cak", macsec("mka-ckn: ab, mka-cak: %s" % secret)),
    ):
        with pytest.raises(ImageError) as caught:
            keyfiles(parse(text))
        assert f"interfaces[0].{key} is no single line" in str(caught.value)
        assert "secret" not in str(caught.value)
