# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Robot has around the servers: addresses, names, failover addresses, firewalls, virtual switches."""

import pytest

IP, NET = "127.66.0.1", "2001:db8:0:1::"
RULE = {"name": "ssh", "ip_version": "ipv4", "protocol": "tcp", "dst_port": "22", "action": "accept"}


def form(rules, **fields):
    """A form with rules of the input chain."""
    return fields | {f"rules[input][{n}][{name}]": value for n, row in enumerate(rules) for name, value in row.items()}


def fields(robot, method, path, body):
    """(code, missing, invalid) of a refusal."""
    error = robot(method, path, body).json()["error"]
    return error["code"], error.get("missing"), error.get("invalid")


def test_credentials_can_be_tried(robot):
    assert robot.good("GET", "/") == {}
    assert robot.refused("GET", "/", auth=("#ws+lab", "wrong")) == (401, "UNAUTHORIZED")


def test_addresses(robot, server):
    (item,) = robot.good("GET", "/ip")
    assert item == {
        "ip": {
            "ip": IP,
            "server_ip": IP,
            "server_number": server,
            "locked": False,
            "separate_mac": None,
            "traffic_warnings": False,
            "traffic_hourly": 200,
            "traffic_daily": 2000,
            "traffic_monthly": 20,
        }
    }
    assert item["ip"].items() < robot.good("GET", f"/ip/{IP}")["ip"].items()
    changed = robot.good("POST", f"/ip/{IP}", {"traffic_warnings": "true", "traffic_hourly": "5"})["ip"]
    assert (changed["traffic_warnings"], changed["traffic_hourly"], changed["traffic_daily"]) == (True, 5, 2000)
    assert robot.good("GET", f"/ip?server_ip={IP}")[0]["ip"]["traffic_hourly"] == 5
    assert robot.refused("GET", "/ip?server_ip=192.0.2.1") == (404, "NOT_FOUND")
    assert robot.refused("GET", "/ip/192.0.2.1") == (404, "IP_NOT_FOUND")
    assert fields(robot, "POST", f"/ip/{IP}", {"traffic_daily": "much"}) == ("INVALID_INPUT", None, ["traffic_daily"])
    assert fields(robot, "POST", f"/ip/{IP}", {"traffic_warnings": "x"})[2] == ["traffic_warnings"]
    assert robot.refused("GET", f"/ip/{IP}/mac") == (404, "MAC_NOT_FOUND")
    assert robot.refused("PUT", f"/ip/{IP}/mac") == (404, "MAC_NOT_AVAILABLE")


def test_networks(robot, server):
    (item,) = robot.good("GET", "/subnet")
    shown = {name: item["subnet"][name] for name in ("ip", "mask", "gateway", "server_ip", "failover")}
    assert shown == {"ip": NET, "mask": 64, "gateway": "fe80::1", "server_ip": IP, "failover": False}
    assert robot.good("GET", f"/subnet/{NET}") == item
    assert robot.good("POST", f"/subnet/{NET}", {"traffic_monthly": "1"})["subnet"]["traffic_monthly"] == 1
    assert robot.good("GET", f"/ip/{IP}")["ip"]["traffic_monthly"] == 20
    assert robot.refused("GET", "/subnet/2001:db8::") == (404, "SUBNET_NOT_FOUND")


def test_reverse_names(robot, server):
    path = f"/rdns/{IP}"
    assert robot.refused("GET", path) == (404, "RDNS_NOT_FOUND")
    assert robot.refused("DELETE", path) == (404, "RDNS_NOT_FOUND")
    assert robot("PUT", path, {"ptr": "a.example.com"}).status_code == 201
    assert robot.refused("PUT", path, {"ptr": "a.example.com"}) == (409, "RDNS_ALREADY_EXISTS")
    assert robot("POST", path, {"ptr": "b.example.com"}).status_code == 200
    assert robot("POST", f"/rdns/{NET}5", {"ptr": "c.example.com"}).status_code == 201
    assert robot.good("GET", "/rdns/2001:db8:0:1:0:0:0:5") == {"rdns": {"ip": f"{NET}5", "ptr": "c.example.com"}}
    assert [item["rdns"]["ptr"] for item in robot.good("GET", "/rdns")] == ["b.example.com", "c.example.com"]
    assert fields(robot, "POST", path, {}) == ("INVALID_INPUT", ["ptr"], None)
    assert fields(robot, "POST", path, {"ptr": "a b"}) == ("INVALID_INPUT", None, ["ptr"])
    assert robot.good("DELETE", path) is None
    for other in ("192.0.2.1", "2001:db8:0:2::1", "words"):
        assert robot.refused("GET", f"/rdns/{other}") == (404, "IP_NOT_FOUND")


def test_failover(robot, server):
    robot.lab.dedicated(number=1, failover=["192.0.2.10"])
    (item,) = robot.good("GET", "/failover")
    first = robot.good("GET", "/server/1")["server"]
    assert item["failover"] == {
        "ip": "192.0.2.10",
        "netmask": "255.255.255.255",
        "server_ip": first["server_ip"],
        "server_ipv6_net": first["server_ipv6_net"],
        "server_number": 1,
        "active_server_ip": first["server_ip"],
    }
    path, here = "/failover/192.0.2.10", {"active_server_ip": IP}
    assert robot.refused("POST", path, {"active_server_ip": first["server_ip"]}) == (409, "FAILOVER_ALREADY_ROUTED")
    assert robot.good("POST", path, here)["failover"]["active_server_ip"] == IP
    assert robot.refused("POST", path, {"active_server_ip": "192.0.2.9"}) == (404, "FAILOVER_NEW_SERVER_NOT_FOUND")
    assert robot.good("DELETE", path)["failover"]["active_server_ip"] is None
    assert robot.refused("DELETE", path) == (409, "FAILOVER_ALREADY_ROUTED")
    robot.good("POST", path, here)
    robot.lab.control("DELETE", f"/dedicated/{server}")
    assert robot.good("GET", path)["failover"]["active_server_ip"] is None
    assert robot.refused("GET", "/failover/192.0.2.11") == (404, "NOT_FOUND")
    assert [net["subnet"]["failover"] for net in robot.good("GET", "/subnet")] == [False, True]


def test_firewall(robot, server):
    path = f"/firewall/{server}"
    empty = {"input": [], "output": []}
    assert robot.good("GET", f"/firewall/{IP}")["firewall"] == {
        "server_ip": IP,
        "server_number": server,
        "status": "disabled",
        "filter_ipv6": False,
        "whitelist_hos": True,
        "port": "main",
        "rules": empty,
    }
    wanted = form([RULE, {"action": "discard"}], status="active", filter_ipv6="true")
    assert robot.good("POST", path, wanted)["firewall"]["status"] == "in process"
    assert robot.refused("POST", path, wanted) == (409, "FIREWALL_IN_PROCESS")
    robot.clock.sleep(1)
    shown = robot.good("GET", path)["firewall"]
    assert (shown["status"], shown["filter_ipv6"]) == ("active", True)
    none = dict.fromkeys(["src_ip", "dst_ip", "src_port", "tcp_flags"])
    nothing = dict.fromkeys([*RULE, *none])
    assert shown["rules"] == {"input": [RULE | none, nothing | {"action": "discard"}], "output": []}
    assert robot.good("DELETE", path)["firewall"]["rules"] == empty
    assert robot.refused("GET", f"{path}?port=kvm") == (404, "FIREWALL_PORT_NOT_FOUND")
    assert robot.refused("GET", "/firewall/1") == (404, "SERVER_NOT_FOUND")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({}, (["status"], None)),
        ({"status": "on"}, (None, ["status"])),
        (form([{"name": "x"}], status="active"), (["rules[input][0][action]"], None)),
        (form([RULE | {"action": "drop"}], status="active"), (None, ["rules[input][0][action]"])),
        (form([RULE | {"colour": "red"}], status="active"), (None, ["rules[input][0][colour]"])),
        (form([{"src_ip": "192.0.2.1", "action": "accept"}], status="active"), (None, ["rules[input][0][ip_version]"])),
        (form([RULE] * 11, status="active"), (None, ["rules[input]"])),
    ],
)
def test_firewalls_that_are_refused(robot, server, wanted, said):
    assert fields(robot, "POST", f"/firewall/{server}", wanted)[1:] == said
    assert robot.good("GET", f"/firewall/{server}")["firewall"]["status"] == "disabled"


def test_templates(robot, server):
    assert robot.good("GET", "/firewall/template") == []
    answer = robot("POST", "/firewall/template", form([RULE], name="web", is_default="true"))
    assert answer.status_code == 201
    made = answer.json()["firewall_template"]
    assert (made["id"], made["name"], made["is_default"], made["rules"]["input"][0]["name"]) == (1, "web", True, "ssh")
    assert robot.refused("POST", "/firewall/template", form([{"name": "x"}], name="bad")) == (400, "INVALID_INPUT")
    robot.good("POST", "/firewall/template", {"name": "other", "is_default": "true"})
    heads = [item["firewall_template"] for item in robot.good("GET", "/firewall/template")]
    assert [(head["name"], head["is_default"]) for head in heads] == [("web", False), ("other", True)]
    assert "rules" not in heads[0]
    assert robot.good("POST", "/firewall/template/1", {"name": "new"})["firewall_template"]["rules"] == made["rules"]
    robot.good("POST", f"/firewall/{server}", {"template_id": "1"})
    assert robot.good("DELETE", "/firewall/template/1") is None
    robot.clock.sleep(1)
    firewall = robot.good("GET", f"/firewall/{server}")["firewall"]
    assert (firewall["status"], firewall["rules"]) == ("active", made["rules"])
    assert robot.refused("GET", "/firewall/template/1") == (404, "FIREWALL_TEMPLATE_NOT_FOUND")
    gone = {"template_id": "1"}
    assert robot.refused("POST", f"/firewall/{server}", gone) == (404, "FIREWALL_TEMPLATE_NOT_FOUND")


def test_switches(robot, server):
    assert robot.good("GET", "/vswitch") == []
    answer = robot("POST", "/vswitch", {"name": "inner", "vlan": "4010"})
    assert answer.status_code == 201
    made = answer.json()
    head = {"id": 4321, "name": "inner", "vlan": 4010, "cancelled": False}
    assert made == head | {"server": [], "subnet": [], "cloud_network": []}
    assert robot.good("GET", "/vswitch") == [head]
    path, members = "/vswitch/4321", {"server[]": [str(server)]}
    assert robot("POST", f"{path}/server", members).status_code == 201
    assert robot.refused("DELETE", f"{path}/server", members) == (409, "VSWITCH_IN_PROCESS")
    assert robot.good("GET", path)["server"][0]["status"] == "in process"
    robot.clock.sleep(1)
    (member,) = robot.good("GET", path)["server"]
    identity = {"server_ip": IP, "server_ipv6_net": NET, "server_number": server}
    assert member == identity | {"status": "ready"}
    robot.good("POST", "/vswitch", {"name": "second", "vlan": "4010"})
    assert robot.refused("POST", "/vswitch/4322/server", members) == (409, "VSWITCH_VLAN_NOT_UNIQUE")
    robot.good("POST", path, {"name": "outer", "vlan": "4011"})
    robot.good("POST", "/vswitch/4322/server", members)
    assert robot.good("DELETE", f"{path}/server", {"server[]": IP}) is None
    assert robot.good("GET", path)["server"] == []
    assert robot.good("DELETE", path, {"cancellation_date": "2026-12-31"}) is None
    assert robot.good("GET", path)["cancelled"]
    assert robot.refused("DELETE", path, {"cancellation_date": "now"}) == (409, "CONFLICT")
    robot.lab.control("DELETE", f"/dedicated/{server}")
    assert robot.good("GET", "/vswitch/4322")["server"] == []
    robot.good("DELETE", "/vswitch/4322", {"cancellation_date": "now"})
    assert robot.refused("GET", "/vswitch/4322") == (404, "NOT_FOUND")


def test_switches_that_are_refused(robot, server):
    assert fields(robot, "POST", "/vswitch", {"vlan": "3999"})[1:] == (["name"], None)
    assert fields(robot, "POST", "/vswitch", {"name": "n", "vlan": "3999"})[1:] == (None, ["vlan"])
    robot.good("POST", "/vswitch", {"name": "n", "vlan": "4000"})
    path = "/vswitch/4321"
    assert robot.refused("POST", f"{path}/server", {"server[]": [str(server), "1"]}) == (404, "SERVER_NOT_FOUND")
    assert robot.refused("DELETE", f"{path}/server", {"server[]": str(server)}) == (404, "SERVER_NOT_FOUND")
    assert fields(robot, "POST", f"{path}/server", {})[1:] == (["server"], None)
    assert fields(robot, "DELETE", path, {"cancellation_date": "soon"})[1:] == (None, ["cancellation_date"])
    assert robot.refused("GET", "/vswitch/x") == (404, "NOT_FOUND")
    assert robot.good("GET", path)["server"] == []


@pytest.mark.parametrize(
    ("method", "path", "route", "limit"),
    [
        ("GET", "/failover", "GET /failover", 100),
        ("POST", "/failover/192.0.2.10", "POST /failover/{ip}", 50),
        ("DELETE", "/rdns/192.0.2.10", "DELETE /rdns/{ip}", 500),
        ("GET", "/subnet", "GET /subnet", 5000),
        ("PUT", "/ip/192.0.2.10/mac", "PUT /ip/{ip}/mac", 10),
        ("POST", "/firewall/1", "POST /firewall/{server}", 500),
        ("DELETE", "/firewall/template/1", "DELETE /firewall/template/{template}", 500),
        ("POST", "/vswitch/1/server", "POST /vswitch/{vswitch}/server", 100),
    ],
)
def test_limits(robot, method, path, route, limit):
    robot.lab.control("POST", "/robot/limits", {"route": route, "remaining": 0})
    error = robot(method, path).json()["error"]
    assert (error["code"], error["max_request"]) == ("RATE_LIMIT_EXCEEDED", limit)
