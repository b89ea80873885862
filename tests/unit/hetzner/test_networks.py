# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of a new server: places, primary IPs, zones, and whether SSH gets there."""

from __future__ import annotations

import ipaddress
import subprocess
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import cloud_networks as networks
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_types import Choice
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_servers import ssh_address

SUBNETS = [
    {"ip_range": "10.0.1.0/24", "network_zone": "eu-central"}, {"ip_range": "10.0.2.0/24", "network_zone": "eu-central"}
]  # fmt: skip
NET = {"id": 7, "name": "cluster", "ip_range": "10.0.0.0/16", "subnets": SUBNETS}
BARE = {"id": 8, "name": "bare", "ip_range": "192.168.0.0/24", "subnets": []}
TYPE = {"id": 1, "name": "cx23", "locations": [{"id": 1, "name": "fsn1"}, {"id": 4, "name": "ash"}]}
LISTS = {
    "networks": [NET, BARE],
    "locations": [{"name": "fsn1", "network_zone": "eu-central"}, {"name": "ash", "network_zone": "us-east"}],
    "server_types": [TYPE],
    "primary_ips": [
        {"id": 1, "name": "front", "type": "ipv4", "location": {"name": "ash"}, "assignee_id": None},
        {"id": 2, "name": "front", "type": "ipv6", "location": {"name": "ash"}, "assignee_id": 9},
    ],
}
CATALOG = SimpleNamespace(listed=LISTS.get)


def places(*entries):
    return networks.resolve_attachments({"networks": list(entries)}, CATALOG)


def refused(*entries):
    with pytest.raises(Unfit) as caught:
        places(*entries)
    return str(caught.value)


def test_a_network_by_name_by_id_and_with_addresses():
    plain = {"network": 7, "ip": None, "alias_ips": [], "ip_range": None}
    assert places("cluster") == places("7") == places({"name": "cluster"}) == [plain]
    assert not networks.needs_action(plain)
    (place,) = places({"name": "cluster", "ip": "10.0.1.5", "alias_ips": ["10.0.2.6"]})
    assert (place["ip"], place["alias_ips"]) == ("10.0.1.5", ["10.0.2.6"])
    assert networks.needs_action(place)
    (place,) = places({"name": "cluster", "subnet": "10.0.2.0/24"})
    assert place["ip_range"] == "10.0.2.0/24"
    assert networks.needs_action(place)
    assert places({"name": "bare", "ip": "192.168.0.9"})[0]["ip"] == "192.168.0.9"


@pytest.mark.parametrize(
    ("entry", "finding"),
    [
        ("nowhere", "networks: 'nowhere' does not exist; there are: bare, cluster"),
        ({"ip": "10.0.1.5"}, "is no network; give its name, or a dictionary of name, ip, alias_ips, subnet"),
        ({"name": "cluster", "address": "10.0.1.5"}, "is no network"),
        ({"name": "cluster", "ip": "10.0.3.5"}, "'10.0.3.5' is in none of the subnets of 'cluster'; choose one of"),
        ({"name": "cluster", "ip": "10.0.2.5", "subnet": "10.0.1.0/24"}, "is in none of the subnets"),
        ({"name": "cluster", "subnet": "10.0.3.0/24"}, "has no subnet '10.0.3.0/24'; there are: 10.0.1.0/24, 10."),
        ({"name": "cluster", "ip": "10.0.1.255"}, "is kept by the API"),
        ({"name": "bare", "ip": "192.168.0.1"}, "is kept by the API"),
        ({"name": "cluster", "ip": "2001:db8::1"}, "is no IPv4 address"),
        ({"name": "cluster", "alias_ips": "10.0.1.5"}, "give a list of addresses"),
        ({"name": "cluster", "ip": "10.0.1.5", "alias_ips": ["10.0.1.5"]}, "an address is named twice"),
    ],
)  # fmt: skip
def test_places_that_cannot_be(entry, finding):
    assert finding in refused(entry)


def test_a_network_is_named_once():
    assert "'cluster' is named twice" in refused("cluster", {"name": "7", "ip": "10.0.1.5"})


@pytest.mark.parametrize("answer", [{"ip_range": "10.0.0.0/99"}, {"ip_range": None}, {"subnets": ["x"]}])
def test_a_network_without_a_range_that_can_be_read_is_refused(monkeypatch, answer):
    monkeypatch.setitem(LISTS, "networks", [{**NET, **answer}])
    assert "gives no address range of 'cluster'" in refused({"name": "cluster"})


def test_addresses_that_are_taken():
    mine = {"n1": places({"name": "cluster", "ip": "10.0.1.5"}), "n2": places({"name": "cluster", "ip": "10.0.1.5"})}
    (finding,) = networks.taken(mine, [])
    assert finding == "machine 'n2': networks: '10.0.1.5' is taken by 'n1'; take another address"
    server = {"name": "db", "private_net": [{"network": 7, "ip": "10.0.1.4", "alias_ips": ["10.0.1.5"]}]}
    assert "is taken by 'db'" in networks.taken({"n1": mine["n1"]}, [server])[0]
    elsewhere = {**server, "private_net": [{"network": 8, "ip": "10.0.1.5"}]}
    assert networks.taken({"n1": mine["n1"]}, [elsewhere]) == []


def test_what_an_interrupted_run_has_left_out():
    wanted = places("cluster", "bare")
    assert networks.missing(wanted, {"private_net": [{"network": 8}]}) == [wanted[0]]
    assert networks.missing(wanted, {}) == wanted


def here(machine=None, choices=(("fsn1",)), entries=()):
    machine = machine or {}
    found = [Choice(TYPE, place, {"id": 1}) for place in choices]
    primary = networks.primary_ips(machine, CATALOG)
    return [one.location for one in networks.where_it_can_be(found, CATALOG, places(*entries), primary)]


def test_a_primary_ip_decides_the_location():
    assert here({"primary_ipv4": "front"}, ["fsn1", "ash"]) == ["ash"]
    assert here({"primary_ipv4": "1"}, [None]) == ["ash"]
    with pytest.raises(Unfit, match="primary_ipv4: 'front' is in ash; name that location"):
        here({"primary_ipv4": "front"}, ["fsn1"])
    with pytest.raises(Unfit, match="primary_ipv6: 'back' does not exist; there are: front"):
        here({"primary_ipv6": "back"})
    with pytest.raises(Unfit, match="'front' is named, but enable_ipv4 is false"):
        here({"primary_ipv4": "front", "enable_ipv4": False})


def test_a_primary_ip_of_another_server_is_refused():
    ipv4, ipv6 = LISTS["primary_ips"]
    networks.check_free("ipv4", ipv4)
    with pytest.raises(Unfit, match="primary_ipv6: 'front' belongs to server 9"):
        networks.check_free("ipv6", ipv6)
    twice = {"n1": {"primary_ips": {"ipv4": 1}}, "n2": {"primary_ips": {"ipv4": 1}}}
    assert networks.named_twice(twice) == ["machine 'n2': primary_ipv4: machine 'n1' has it, too; give each its own"]


def test_a_private_network_decides_the_zone():
    assert here(choices=["ash", "fsn1"], entries=["cluster"]) == ["fsn1"]
    assert here(choices=["ash", "fsn1"], entries=["bare"]) == ["ash", "fsn1"]
    with pytest.raises(Unfit, match="the subnets are in eu-central, but location ash is not"):
        here(choices=["ash"], entries=["cluster"])


IPV6_ONLY = {"enable_ipv4": False, "ssh_args": ""}
PRIVATE = {**IPV6_ONLY, "enable_ipv6": False}


def nets(*texts):
    return [ipaddress.ip_network(text) for text in texts]


@pytest.fixture
def no_proxy(monkeypatch):
    """The configuration of ssh names no host on the way."""
    monkeypatch.setattr(
        networks, "run_limited", lambda argv, _seconds: (0, "hostname 10.0.1.5\nport 22\nproxyjump none\n", "")
    )


@pytest.mark.parametrize(
    ("machine", "entries", "routes", "finding"),
    [
        ({}, [], [], ""),
        ({"enable_ipv4": False, "ssh_args": None}, [], [], ""),
        (IPV6_ONLY, [], nets("::/0"), ""),
        (IPV6_ONLY, [], nets("2001:db8:10::/48"), ""),
        (IPV6_ONLY, [], None, ""),
        (IPV6_ONLY, [], nets("fd00::/64"), "this controller has no route to IPv6 addresses"),
        (IPV6_ONLY, [], [], "name a jump host (ProxyJump in ansible_ssh_common_args)"),
        (PRIVATE, ["cluster"], nets("0.0.0.0/0", "10.0.0.0/8"), ""),
        (PRIVATE, ["cluster"], nets("10.0.1.0/24"), ""),
        (PRIVATE, ["cluster"], None, ""),
        (PRIVATE, ["cluster"], nets("0.0.0.0/0", "10.1.0.0/16"), "has no route of its own to 10.0.0.0/16"),
        (PRIVATE, [], nets("0.0.0.0/0"), "a server needs a network"),
        ({**PRIVATE, "ssh_args": None}, [], None, "a server needs a network"),
        ({**PRIVATE, "ssh_args": None}, ["cluster"], [], ""),
    ],
)
@pytest.mark.usefixtures("no_proxy")
def test_what_ssh_cannot_reach_from_here(machine, entries, routes, finding):
    found = networks.reach_finding(machine, places(*entries), CATALOG, lambda _version: routes)
    assert finding in found if finding else found == ""


@pytest.mark.parametrize("said", ["proxyjump bastion", "proxycommand nc -X connect %h"])
def test_the_configuration_of_ssh_may_name_a_host_on_the_way(monkeypatch, said):
    asked = []
    monkeypatch.setattr(
        networks, "run_limited", lambda argv, _seconds: asked.append(argv) or (0, f"hostname x\nport 22\n{said}\n", "")
    )
    place = {"name": "cluster", "ip": "10.0.1.5"}
    machine = {**PRIVATE, "ssh_args": "-o 'ProxyJump=a b'"}
    assert networks.reach_finding(machine, places(place), CATALOG, lambda _version: []) == ""
    assert asked == [["ssh", "-G", "-o", "ProxyJump=a b", "--", "10.0.1.5"]]


def test_the_routes_of_this_host_are_read(tmp_path, monkeypatch):
    ipv4, ipv6 = tmp_path / "route", tmp_path / "ipv6_route"
    monkeypatch.setattr(networks, "_IPV4_ROUTES", str(ipv4))
    monkeypatch.setattr(networks, "_IPV6_ROUTES", str(ipv6))
    assert networks.routes_of_this_host(4) is None
    assert networks.routes_of_this_host(6) is None
    ipv4.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "eth0\t0002000A\t00000000\t0200\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert networks.routes_of_this_host(4) == nets("0.0.0.0/0", "10.0.1.0/24")
    # a kernel without IPv6 has no such file
    assert networks.routes_of_this_host(6) == []
    zero, router = "0" * 32, "fe800000000000000000000000000001"
    ipv6.write_text(
        f"20010db8001000000000000000000000 30 {zero} 00 {router} 00000400 1 0 00000003 eth0\n"
        f"fe800000000000000000000000000000 40 {zero} 00 {zero} 00000100 1 0 00000001 eth0\n"
        f"20010db8000000000000000000000001 80 {zero} 00 {zero} 00000000 2 0 80200001 eth0\n"
        f"{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo\n"
    )
    assert networks.routes_of_this_host(6) == nets("2001:db8:10::/48")


def test_an_empty_network_namespace_has_no_routes():
    """What the kernel really writes there."""
    script = "for file in route ipv6_route; do cat /proc/net/$file; echo; done"
    line = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"this host makes no network namespaces: {done.stderr.strip()}")
    ipv4, ipv6 = done.stdout.split("\n\n")[:2]
    assert networks._ipv4_routes(line.split() for line in ipv4.splitlines()[1:]) == []
    assert networks._ipv6_routes(line.split() for line in ipv6.splitlines() if line) == []


def test_where_ssh_reaches_a_server():
    private = [{"network": 7, "ip": "10.0.1.5"}]
    public = {"ipv4": {"ip": "192.0.2.1"}, "ipv6": {"ip": "2001:db8:1::/64"}}
    assert ssh_address({"public_net": public, "private_net": private}) == "192.0.2.1"
    assert ssh_address({"public_net": {**public, "ipv4": None}, "private_net": private}) == "2001:db8:1::1"
    assert ssh_address({"public_net": {"ipv4": None, "ipv6": None}, "private_net": private}) == "10.0.1.5"
    assert ssh_address({}) is None


def primary(number, name, **more):
    item = {"id": number, "name": name, "ip": f"192.0.2.{number}", "assignee_id": 1, "auto_delete": True}
    return {**item, "created": "2026-01-01T10:00:00Z", **more}


@pytest.mark.parametrize(
    ("item", "machine", "goes_unsaid"),
    [
        (primary(7, "primary_ip-7"), {}, True),
        # the two are made in one second or the next; of one time nothing is known
        (primary(7, "primary_ip-7", created="2026-01-01T09:59:58Z"), {}, True),
        (primary(7, "primary_ip-7", created=None), {}, True),
        (primary(7, "primary_ip-7", created="2025-12-01T10:00:00Z"), {}, False),
        (primary(7, "front"), {}, False),
        (primary(7, "primary_ip-7-mail"), {}, False),
        # it stays
        (primary(7, "front", auto_delete=False), {"primary_ipv4": "front"}, True),
        # another server has it
        (primary(7, "front", assignee_id=2), {"primary_ipv4": "front"}, True),
        # what a machine names is wanted again
        (primary(7, "primary_ip-7"), {"primary_ipv4": "primary_ip-7"}, False),
        (primary(7, "primary_ip-7"), {"primary_ipv6": "7"}, False),
    ],
)
def test_primary_ips_that_must_not_go_unsaid_with_a_server(item, machine, goes_unsaid):
    server = {"id": 1, "name": "n1", "created": "2026-01-01T10:00:01Z"}
    assert networks.kept_by_people(machine, server, [item]) == ([] if goes_unsaid else [item])


def test_how_they_are_kept():
    server = {"id": 1, "name": "n1"}
    assert networks.keep_them(server, [primary(7, "front")]) == (
        "server 'n1' (id 1) would take primary IP 'front' (192.0.2.7) with it, since auto_delete is on, and that "
        "was not made for this server alone. Switch it off (hcloud primary-ip update 7 --auto-delete=false), then run "
        "again. It stays and costs until you delete it"
    )
