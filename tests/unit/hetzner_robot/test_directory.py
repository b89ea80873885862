# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which server is which machine, and the address and login of Robot that a module is given."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_servers
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import FleetError, Refused
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_client import robot_access

SERVERS = [
    {"server_number": 1, "server_name": "a", "server_ip": "192.0.2.1", "server_ipv6_net": "2001:db8:0:1::"},
    {"server_number": 2, "server_name": "b", "server_ip": None, "server_ipv6_net": "2001:db8:0:2::"},
    {"server_number": 3, "server_name": "twin", "server_ip": "192.0.2.3", "server_ipv6_net": None},
    {"server_number": 4, "server_name": "twin", "server_ip": "192.0.2.4", "server_ipv6_net": None},
]


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        ({"name": "x", "server_number": 1}, 1),
        ({"name": "x", "server_number": "2"}, 2),
        ({"name": "x", "server_ip": "192.0.2.3"}, 3),
        ({"name": "x", "server_ip": "2001:0db8:0:2::2"}, 2),
        ({"name": "b"}, 2),
        ({"name": "a", "server_number": 4}, 4),
        ({"name": "x", "server_number": 1, "server_ip": "192.0.2.1"}, 1),
        ({"name": "a", "server_number": None}, 1),
    ],
)
def test_number_then_address_then_name(machine, number):
    assert robot_servers.find(machine, SERVERS)["server_number"] == number


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"name": "missing"}, "no server with the name 'missing'"),
        ({"name": "x", "server_number": 9}, "no server with the number 9"),
        ({"name": "twin"}, "the servers 3, 4 all have the name 'twin'"),
        ({"name": "x", "server_number": 1, "server_ip": "192.0.2.3"}, "does not have the server_ip"),
    ],
)
def test_what_is_not_exactly_one_server_is_refused(machine, message):
    with pytest.raises(Refused, match=message):
        robot_servers.find(machine, SERVERS)


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        ([{"name": "x", "server_number": "12a"}], "server_number: '12a' is no number"),
        ([{"name": "x", "server_number": True}], "server_number: True is no number"),
        ([{"name": "x", "server_number": -3}], "server_number: -3 is no number"),
        ([{"name": "x", "server_ip": "192.0.2"}], "server_ip: '192.0.2' is no IP address"),
        ([{"name": "x", "server_ip": 3}], "server_ip: 3 is no IP address"),
        (
            [{"name": "x", "server_number": 1}, {"name": "y", "server_number": "1"}],
            "machine 'y': server_number: 1 is the",
        ),
    ],
)
def test_input_that_cannot_be_right(machines, message):
    (finding,) = robot_servers.input_findings(machines)
    assert message in finding


def test_good_input_has_no_findings():
    assert robot_servers.input_findings([{"name": "x", "server_number": 1}, {"name": "y"}, {"name": "z"}]) == []


def test_facts_of_a_server_without_ipv4():
    facts = robot_servers.facts({**SERVERS[1], "product": "AX41-NVMe"})
    assert facts == {
        "server_number": 2,
        "server_name": "b",
        "ipv4": None,
        "ipv6": "2001:db8:0:2::/64",
        "ipv6_address": "2001:db8:0:2::2",
        "product": "AX41-NVMe",
    }


@pytest.mark.parametrize("address", ["$(id)", "-oProxyCommand=id", "192.0.2.1;id", "fe80::1%$(id)", 7, None, ""])
def test_an_address_that_is_none_never_reaches_a_program(address):
    assert robot_servers.facts({"server_number": 2, "server_ip": address})["ipv4"] is None
    assert robot_servers.facts({"server_number": 2, "server_ipv6_net": address})["ipv6_address"] is None


GOOD = {"HROBOT_API_USER": "#ws+a", "HROBOT_API_PASSWORD": "secret"}


def test_parameters_win_over_the_environment():
    assert robot_access({}, GOOD) == ("#ws+a", "secret", "https://robot-ws.your-server.de")
    environment = {**GOOD, "HROBOT_ENDPOINT": "http://127.0.0.1:8080"}
    assert robot_access({"robot_user": "u"}, environment) == ("u", "secret", "http://127.0.0.1:8080")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"HROBOT_API_USER": ""}, "robot_user: missing"),
        ({"HROBOT_API_PASSWORD": ""}, "robot_password: missing"),
        ({"HROBOT_API_PASSWORD": "secret\nX"}, "robot_password: contains"),
        ({"HROBOT_API_USER": "a:b"}, "robot_user: contains a colon"),
        ({"HROBOT_ENDPOINT": "robot"}, "endpoint: not the address"),
        ({"HROBOT_ENDPOINT": "https://user:pw@example.com"}, "endpoint: not the address"),
        ({"HROBOT_ENDPOINT": "http://example.com"}, "endpoint: http would send the password"),
    ],
)
def test_access_that_cannot_work(more, message):
    with pytest.raises(FleetError, match=message) as error:
        robot_access({}, {**GOOD, **more})
    assert "secret" not in str(error.value)
    assert "pw@" not in str(error.value)
