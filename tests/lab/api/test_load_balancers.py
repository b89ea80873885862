# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load balancers: shapes, services and their defaults, targets and their health, networks, refusals."""

import pytest

TCP = {"protocol": "tcp", "listen_port": 6443, "destination_port": 6443}


class Balancers:
    """Load balancers of one lab, by their ids."""

    def __init__(self, api):
        self.api = api

    def create(self, name="lb", **options):
        body = {"name": name, "load_balancer_type": "lb11", "location": "fsn1"} | options
        answer = self.api.good("POST", "/load_balancers", body)
        self.api.wait(answer["action"])
        return answer["load_balancer"]["id"]

    def shown(self, balancer):
        return self.api.good("GET", f"/load_balancers/{balancer}")["load_balancer"]

    def act(self, balancer, name, body=None):
        path = f"/load_balancers/{balancer}/actions/{name}"
        return self.api.wait(self.api.good("POST", path, body)["action"])

    def refused(self, balancer, name, body=None):
        return self.api.refused("POST", f"/load_balancers/{balancer}/actions/{name}", body)

    def health(self, balancer):
        """(status, detail) of the first service of each target."""
        return [
            (target["health_status"][0]["status"], target["health_status"][0]["detail"])
            for target in self.shown(balancer)["targets"]
        ]


@pytest.fixture
def balancers(api):
    return Balancers(api)


def by_server(server, **options):
    return {"type": "server", "server": {"id": server}} | options


def by_selector(selector, **options):
    return {"type": "label_selector", "label_selector": {"selector": selector}} | options


def by_ip(address):
    return {"type": "ip", "ip": {"ip": address}}


def test_types_and_their_prices(api):
    types = api.good("GET", "/load_balancer_types")["load_balancer_types"]
    assert [item["name"] for item in types] == ["lb11", "lb21", "lb31"]
    assert api.good("GET", "/load_balancer_types/1")["load_balancer_type"] == types[0]
    assert types[0]["max_services"] == 5
    prices = api.good("GET", "/pricing")["pricing"]["load_balancer_types"]
    assert prices[0] == {"id": 1, "name": "lb11", "prices": types[0]["prices"]}


def test_shape(api, balancers):
    balancer = balancers.create(labels={"a": "b"})
    shown = balancers.shown(balancer)
    assert shown["public_net"]["enabled"]
    assert shown["public_net"]["ipv4"]["ip"] == "203.0.113.1"
    assert (shown["algorithm"], shown["services"], shown["targets"]) == ({"type": "round_robin"}, [], [])
    assert (shown["location"]["name"], shown["load_balancer_type"]["name"]) == ("fsn1", "lb11")
    assert (shown["protection"], shown["labels"], shown["private_net"]) == ({"delete": False}, {"a": "b"}, [])
    assert api.good("GET", "/load_balancers?label_selector=a=b")["load_balancers"] == [shown]
    assert api.good("GET", "/load_balancers?name=other")["load_balancers"] == []
    addresses = api.good("GET", "/primary_ips")["primary_ips"]
    assert {(item["assignee_id"], item["assignee_type"]) for item in addresses} == {(balancer, "load_balancer")}
    commands = api.good("GET", f"/load_balancers/{balancer}/actions")["actions"]
    assert [action["command"] for action in commands] == ["create_load_balancer"]


def test_rename_and_delete(api, balancers):
    first, second = balancers.create("a"), balancers.create("b")
    renamed = api.good("PUT", f"/load_balancers/{first}", {"name": "c", "labels": {"x": "y"}})["load_balancer"]
    assert (renamed["name"], renamed["labels"]) == ("c", {"x": "y"})
    assert api.refused("PUT", f"/load_balancers/{first}", {"name": "b"}) == (409, "uniqueness_error")
    balancers.act(first, "change_protection", {"delete": True})
    assert api.refused("DELETE", f"/load_balancers/{first}") == (423, "protected")
    balancers.act(first, "change_protection", {"delete": False})
    assert api.wait(api.good("DELETE", f"/load_balancers/{first}")["action"])["command"] == "delete_load_balancer"
    assert api.refused("GET", f"/load_balancers/{first}") == (404, "not_found")
    assert {item["assignee_id"] for item in api.good("GET", "/primary_ips")["primary_ips"]} == {second}
    assert balancers.shown(balancers.create("d"))["public_net"]["ipv4"]["ip"] == "203.0.113.1", "the address is free"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"location": None}, (422, "invalid_input")),
        ({"network_zone": "eu-central"}, (422, "invalid_input")),
        ({"load_balancer_type": "lb99"}, (422, "invalid_input")),
        ({"name": "there"}, (409, "uniqueness_error")),
        ({"targets": [by_server(1)]}, (422, "invalid_input")),
        ({"targets": [{"type": "server", "ip": {"ip": "1.1.1.1"}}]}, (422, "invalid_input")),
        ({"targets": [by_ip("192.0.2.1")]}, (422, "ip_not_owned")),
        ({"targets": [by_selector("a=b"), by_selector("a=b")]}, (422, "target_already_defined")),
        ({"targets": [by_selector("a=b", use_private_ip=True)]}, (422, "load_balancer_not_attached_to_network")),
        ({"services": [TCP, TCP]}, (412, "source_port_already_used")),
        ({"services": [{"protocol": "tcp", "listen_port": 1}]}, (422, "invalid_input")),
        ({"services": [{"protocol": "https"}]}, (422, "invalid_input")),
        ({"services": [TCP | {"listen_port": port} for port in range(1, 7)]}, (403, "resource_limit_exceeded")),
        ({"public_net": {"ipv4": 1}}, (422, "invalid_input")),
        ({"network": 1}, (422, "invalid_input")),
    ],
)
def test_what_is_refused_leaves_nothing(api, balancers, body, wanted):
    balancers.create("there")
    body = {"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"} | body
    assert api.refused("POST", "/load_balancers", body) == wanted
    assert len(api.good("GET", "/load_balancers")["load_balancers"]) == 1
    assert len(api.good("GET", "/primary_ips")["primary_ips"]) == 2


def test_services_and_their_defaults(balancers):
    balancer = balancers.create(services=[TCP])
    balancers.act(balancer, "add_service", {"protocol": "http", "http": {"sticky_sessions": True}})
    tcp, http = balancers.shown(balancer)["services"]
    check = {"protocol": "tcp", "port": 6443, "interval": 15, "timeout": 10, "retries": 3}
    assert tcp == TCP | {"proxyprotocol": False, "health_check": check}
    assert (http["listen_port"], http["destination_port"]) == (80, 80)
    assert (http["http"]["sticky_sessions"], http["http"]["cookie_name"]) == (True, "HCLBSTICKY")
    assert (http["health_check"]["protocol"], http["health_check"]["http"]["path"]) == ("http", "/")
    wanted = {"listen_port": 6443, "destination_port": 7443, "health_check": {"interval": 5, "port": 8080}}
    balancers.act(balancer, "update_service", wanted)
    changed = balancers.shown(balancer)["services"][0]
    assert changed == tcp | {"destination_port": 7443, "health_check": check | {"interval": 5, "port": 8080}}
    assert balancers.refused(balancer, "update_service", {"listen_port": 1}) == (404, "not_found")
    balancers.act(balancer, "delete_service", {"listen_port": 6443})
    assert [service["listen_port"] for service in balancers.shown(balancer)["services"]] == [80]
    assert balancers.refused(balancer, "delete_service", {"listen_port": 6443}) == (404, "not_found")


def test_health_follows_the_servers(api, balancers):
    server = api.create("n1", labels={"role": "worker"})
    balancer = balancers.create(services=[TCP], targets=[by_server(server), by_selector("role=worker")])

    def health():
        direct, chosen = balancers.shown(balancer)["targets"]
        assert [target["server"]["id"] for target in chosen["targets"]] == [server]
        assert direct["health_status"] == chosen["targets"][0]["health_status"]
        (service,) = direct["health_status"]
        assert service["listen_port"] == 6443
        return service["status"], service["detail"]

    assert health() == ("unhealthy", "layer4_timeout"), "the server is off"
    api.act(server, "poweron")
    assert health() == ("healthy", None)
    api.act(server, "enable_rescue")
    api.act(server, "reset")
    assert health() == ("unhealthy", "layer4_no_connection"), "a rescue has none of the services"
    assert api.server(server)["load_balancers"] == [balancer]
    api.good("PUT", f"/servers/{server}", {"labels": {}})
    assert balancers.shown(balancer)["targets"][1]["targets"] == []
    api.wait(api.good("DELETE", f"/servers/{server}")["action"])
    assert [target["type"] for target in balancers.shown(balancer)["targets"]] == ["label_selector"]


def test_dedicated_servers_as_targets(api, balancers):
    (machine,) = api.lab.dedicated(number=4711, image="debian")
    server = api.create("n1")
    balancer = balancers.create(services=[TCP])
    balancers.act(balancer, "add_target", by_ip(machine["address"]))
    assert balancers.health(balancer) == [("healthy", None)]
    cloud = api.server(server)["public_net"]["ipv4"]["ip"]
    assert balancers.refused(balancer, "add_target", by_ip(cloud)) == (422, "cloud_resource_ip_not_allowed")
    assert balancers.refused(balancer, "add_target", by_ip(machine["address"])) == (422, "target_already_defined")
    balancers.act(balancer, "remove_target", by_ip(machine["address"]))
    assert balancers.refused(balancer, "remove_target", by_ip(machine["address"])) == (404, "not_found")
    assert balancers.shown(balancer)["targets"] == []


def test_private_networks(api, balancers):
    network = api.good("POST", "/networks", {"name": "net", "ip_range": "10.0.0.0/16"})["network"]["id"]
    inside, outside = api.create("n1", networks=[network]), api.create("n2")
    balancer = balancers.create(services=[TCP])
    private = by_server(inside, use_private_ip=True)
    assert balancers.refused(balancer, "add_target", private) == (422, "load_balancer_not_attached_to_network")
    assert balancers.refused(balancer, "disable_public_interface") == (422, "load_balancer_not_attached_to_network")
    taken = api.server(inside)["private_net"][0]["ip"]
    attach = {"network": network}
    assert balancers.refused(balancer, "attach_to_network", attach | {"ip": taken}) == (422, "ip_not_available")
    balancers.act(balancer, "attach_to_network", attach)
    assert balancers.refused(balancer, "attach_to_network", attach) == (422, "load_balancer_already_attached")
    assert balancers.shown(balancer)["private_net"] == [{"network": network, "ip": "10.0.0.3"}]
    assert api.good("GET", f"/networks/{network}")["network"]["load_balancers"] == [balancer]
    assert api.refused("DELETE", f"/networks/{network}") == (422, "unsupported_error")
    balancers.act(balancer, "add_target", private)
    foreign = by_server(outside, use_private_ip=True)
    assert balancers.refused(balancer, "add_target", foreign) == (422, "server_not_attached_to_network")
    balancers.act(balancer, "disable_public_interface")
    assert not balancers.shown(balancer)["public_net"]["enabled"]
    balancers.act(balancer, "enable_public_interface")
    balancers.act(balancer, "add_target", by_server(outside))
    assert balancers.refused(balancer, "disable_public_interface") == (422, "targets_without_use_private_ip")
    balancers.act(balancer, "detach_from_network", {"network": network})
    shown = balancers.shown(balancer)
    assert (shown["private_net"], [target["server"]["id"] for target in shown["targets"]]) == ([], [outside])


def test_a_server_without_a_public_address(api, balancers):
    network = api.good("POST", "/networks", {"name": "net", "ip_range": "10.0.0.0/16"})["network"]["id"]
    public = {"enable_ipv4": False, "enable_ipv6": False}
    server = api.create("n1", networks=[network], public_net=public)
    assert balancers.refused(balancers.create(), "add_target", by_server(server)) == (422, "missing_ipv4")


def test_algorithm_and_type(balancers):
    balancer = balancers.create()
    balancers.act(balancer, "change_algorithm", {"type": "least_connections"})
    assert balancers.refused(balancer, "change_algorithm", {"type": "random"}) == (422, "invalid_input")
    action = balancers.act(balancer, "change_type", {"load_balancer_type": "lb21"})
    assert action["command"] == "change_load_balancer_type"
    shown = balancers.shown(balancer)
    assert (shown["algorithm"]["type"], shown["load_balancer_type"]["name"]) == ("least_connections", "lb21")
    for port in range(1, 7):
        balancers.act(balancer, "add_service", TCP | {"listen_port": port})
    small = {"load_balancer_type": "lb11"}
    assert balancers.refused(balancer, "change_type", small) == (422, "invalid_load_balancer_type")


def test_an_action_locks(api, balancers, over):
    balancer = balancers.create()
    api.lab.control("POST", "/faults", {"point": "action", "command": "add_service", "effect": "slow", "delay": 3600})
    action = api.good("POST", f"/load_balancers/{balancer}/actions/add_service", TCP)["action"]
    assert balancers.refused(balancer, "delete_service", {"listen_port": 6443}) == (423, "locked")
    assert api.refused("DELETE", f"/load_balancers/{balancer}") == (423, "locked")
    over.set()
    api.wait(action)
    balancers.act(balancer, "delete_service", {"listen_port": 6443})


def test_metrics(api, balancers):
    path = f"/load_balancers/{balancers.create()}/metrics"
    query = "?type=bandwidth,open_connections&start=2026-11-01T00:00:00Z&end=2026-11-01T00:01:00Z&step=30"
    metrics = api.good("GET", path + query)["metrics"]
    assert list(metrics["time_series"]) == ["bandwidth.in", "bandwidth.out", "open_connections"]
    assert [value for _at, value in metrics["time_series"]["open_connections"]["values"]] == ["0", "0", "0"]
    assert api.refused("GET", path + "?type=bandwidth") == (422, "invalid_input")
    assert api.refused("GET", path + query.replace("bandwidth", "weight")) == (422, "invalid_input")
