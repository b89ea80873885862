# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Private networks and primary IPs: places, static and alias addresses, subnets and zones, refusals."""

import pytest

SUBNETS = [
    {"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.1.0/24"},
    {"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.2.0/30"},
]


@pytest.fixture
def network(api):
    """A network with two subnets."""
    body = {"name": "net", "ip_range": "10.0.0.0/16", "subnets": SUBNETS}
    return api.good("POST", "/networks", body)["network"]["id"]


def attach(api, server, network, **more):
    """The place of a server after it was attached."""
    api.act(server, "attach_to_network", {"network": network, **more})
    return api.server(server)["private_net"][-1]


def refused(api, server, network, **more):
    """The refusal of an attachment."""
    return api.refused("POST", f"/servers/{server}/actions/attach_to_network", {"network": network, **more})


def test_a_subnet_has_the_gateway_of_its_network(api, network):
    shown = api.good("GET", f"/networks/{network}")["network"]
    assert [subnet["gateway"] for subnet in shown["subnets"]] == ["10.0.0.1", "10.0.0.1"]
    assert api.refused("POST", "/networks", {"name": "x", "ip_range": "10.0.0.0/24", "subnets": SUBNETS}) == (
        422,
        "invalid_input",
    )


def test_places_static_and_chosen_and_their_aliases(api, network):
    first, second, third = api.create("n1"), api.create("n2"), api.create("n3", networks=[network])
    place = attach(api, first, network, ip="10.0.1.7", alias_ips=["10.0.1.8", "10.0.2.1"])
    assert (place["ip"], place["alias_ips"]) == ("10.0.1.7", ["10.0.1.8", "10.0.2.1"])
    assert attach(api, second, network, ip_range="10.0.2.0/30")["ip"] == "10.0.2.2"
    assert api.server(third)["private_net"][0]["ip"] == "10.0.1.1"
    api.act(first, "change_alias_ips", {"network": network, "alias_ips": ["10.0.1.8", "10.0.1.9"]})
    assert api.server(first)["private_net"][0]["alias_ips"] == ["10.0.1.8", "10.0.1.9"]
    api.act(first, "detach_from_network", {"network": network})
    assert api.server(first)["private_net"] == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"ip": "10.0.1.7"}, "ip_not_available"),
        ({"ip": "10.0.1.8"}, "ip_not_available"),
        ({"alias_ips": ["10.0.1.7"]}, "ip_not_available"),
        ({"ip": "10.0.1.255"}, "ip_not_available"),
        ({"ip": "10.9.0.1"}, "invalid_input"),
        ({"ip": "host"}, "invalid_input"),
        ({"ip_range": "10.0.3.0/24"}, "invalid_input"),
        ({"alias_ips": [f"10.0.1.{number}" for number in range(20, 26)]}, "invalid_input"),
    ],
)
def test_places_that_cannot_be(api, network, more, code):
    first, second = api.create("n1"), api.create("n2")
    attach(api, first, network, ip="10.0.1.7", alias_ips=["10.0.1.8"])
    assert refused(api, second, network, **more) == (422, code)
    assert api.server(second)["private_net"] == []


def test_a_network_is_of_a_zone_and_a_server_is_in_it_once(api, network):
    elsewhere = api.create("n1", server_type="cpx11", location="ash")
    assert refused(api, elsewhere, network) == (422, "invalid_input")
    inside = api.create("n2", networks=[network])
    assert refused(api, inside, network) == (409, "uniqueness_error")


def test_a_server_without_any_network_is_made_switched_off_only(api):
    nowhere = {"enable_ipv4": False, "enable_ipv6": False}
    body = {"name": "n1", "server_type": "cx23", "image": "ubuntu-24.04", "public_net": nowhere}
    assert api.refused("POST", "/servers", body) == (422, "invalid_input")
    server = api.good("POST", "/servers", body | {"start_after_create": False})["server"]
    assert (server["public_net"]["ipv4"], server["public_net"]["ipv6"]) == (None, None)


def primary(api, kind, name, **more):
    """A primary IP that no server has."""
    return api.good("POST", "/primary_ips", {"name": name, "type": kind, "location": "fsn1", **more})["primary_ip"]


def test_a_primary_ip_is_taken_by_a_server_and_outlives_it(api):
    ipv4, ipv6 = primary(api, "ipv4", "front"), primary(api, "ipv6", "front6", auto_delete=True)
    assert (ipv4["assignee_id"], ipv4["auto_delete"]) == (None, False)
    net = {"ipv4": ipv4["id"], "ipv6": ipv6["id"]}
    # another server does not get the address that is kept
    other = api.server(api.create("n0"))
    assert other["public_net"]["ipv4"]["ip"] != ipv4["ip"]
    server = api.create("n1", location="fsn1", public_net=net)
    shown = api.server(server)["public_net"]
    assert (shown["ipv4"]["ip"], shown["ipv6"]["ip"]) == (ipv4["ip"], ipv6["ip"])
    found = api.good("GET", "/primary_ips?name=front")["primary_ips"]
    assert [item["assignee_id"] for item in found] == [server]
    assert api.refused("DELETE", f"/primary_ips/{ipv4['id']}") == (422, "primary_ip_assigned")
    body = {"name": "n2", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "public_net": net}
    assert api.refused("POST", "/servers", body) == (422, "primary_ip_assigned")
    api.wait(api.good("DELETE", f"/servers/{server}")["action"])
    assert api.good("GET", f"/primary_ips/{ipv4['id']}")["primary_ip"]["assignee_id"] is None
    assert api.refused("GET", f"/primary_ips/{ipv6['id']}") == (404, "not_found")
    assert api("DELETE", f"/primary_ips/{ipv4['id']}").status_code == 204


@pytest.mark.parametrize(
    ("net", "code"),
    [
        ({"ipv6": 0}, "primary_ip_version_mismatch"),
        ({"ipv4": 99}, "invalid_input"),
        ({"ipv4": 0, "location": "nbg1"}, "primary_ip_datacenter_mismatch"),
    ],
)
def test_primary_ips_that_do_not_fit(api, net, code):
    own = primary(api, "ipv4", "front")["id"]
    location = net.pop("location", "fsn1")
    body = {
        "name": "n1", "server_type": "cx23", "image": "ubuntu-24.04", "location": location,
        "public_net": {kind: number or own for kind, number in net.items()},
    }  # fmt: skip
    assert api.refused("POST", "/servers", body) == (422, code)
    assert api.good("GET", "/servers")["servers"] == []


def test_there_is_no_room_where_the_script_of_faults_says_so(api):
    api.lab.control("POST", "/faults", {"point": "stock", "server_type": "cx23", "location": "fsn1", "times": 2})
    body = {"name": "n1", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1"}
    assert api.refused("POST", "/servers", body) == (412, "resource_unavailable")
    # without a location, the API looks for one that has room
    chosen = {key: value for key, value in body.items() if key != "location"}
    assert api.good("POST", "/servers", chosen)["server"]["location"]["name"] == "nbg1"
    assert api.good("POST", "/servers", body | {"name": "n2"})["server"]["location"]["name"] == "fsn1"
