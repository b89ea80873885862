# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a server: states, locks, refusals."""

from datetime import timedelta

import pytest

from lab.api import resources
from lab.api.cloud_project import Settings
from tests.lab.api.conftest import Api

BODY = {"name": "n1", "server_type": "cx23", "image": "ubuntu-24.04"}
KEYS = {
    "id", "name", "status", "created", "public_net", "private_net", "server_type", "location", "image", "iso",
    "rescue_enabled", "locked", "backup_window", "outgoing_traffic", "ingoing_traffic", "included_traffic",
    "protection", "labels", "volumes", "load_balancers", "primary_disk_size", "placement_group",
}  # fmt: skip
ACTION_KEYS = {"id", "command", "status", "progress", "started", "finished", "resources", "error"}


def hold(api, **fault):
    """Make an action hang until the faults are cleared."""
    api.lab.control("POST", "/faults", {"point": "action", "effect": "stuck"} | fault)


def release(api):
    api.lab.control("DELETE", "/faults")


def test_create_answer(api):
    answer = api.good("POST", "/servers", BODY)
    assert set(answer) == {"server", "action", "next_actions", "root_password"}
    server, action = answer["server"], answer["action"]
    assert set(server) == KEYS
    assert set(action) == ACTION_KEYS
    assert (server["status"], server["locked"]) == ("initializing", True)
    assert (action["command"], action["status"], action["finished"]) == ("create_server", "running", None)
    assert action["resources"] == [{"id": server["id"], "type": "server"}, {"id": 161547269, "type": "image"}]
    assert [entry["command"] for entry in answer["next_actions"]] == ["start_server"]
    assert isinstance(answer["root_password"], str)
    done = api.wait(answer["next_actions"][0])
    assert (done["status"], done["progress"], done["error"]) == ("success", 100, None)
    assert api.server(server["id"])["status"] == "running"


def test_with_a_key_there_is_no_password(api):
    api.key("k1")
    assert api.good("POST", "/servers", BODY | {"ssh_keys": ["k1"]})["root_password"] is None


def test_a_network_without_a_free_address_takes_no_server(api):
    network = api.good("POST", "/networks", {"name": "small", "ip_range": "10.9.0.0/32"})["network"]["id"]
    assert api.refused("POST", "/servers", BODY | {"networks": [network]}) == (422, "no_subnet_available")
    assert api.good("GET", "/servers")["servers"] == []


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"server_type": "cx99"}, 422, "invalid_input"),
        ({"image": "beos-5"}, 422, "invalid_input"),
        ({"image": 1}, 422, "invalid_input"),
        ({"image": 161547270}, 422, "invalid_input"),
        ({"location": "mars1"}, 422, "invalid_input"),
        ({"location": "ash"}, 422, "invalid_input"),
        ({"ssh_keys": ["missing"]}, 422, "invalid_input"),
        ({"networks": [7]}, 422, "invalid_input"),
        ({"firewalls": [{"firewall": 7}]}, 422, "invalid_input"),
        ({"placement_group": 7}, 422, "invalid_input"),
        ({"volumes": [7]}, 422, "invalid_input"),
        ({"public_net": {"enable_ipv4": False, "enable_ipv6": False}}, 422, "invalid_input"),
        ({"user_data": "x" * 32769}, 422, "invalid_input"),
        ({"name": "under_score"}, 422, "invalid_input"),
    ],
)
def test_create_refusals_leave_nothing(api, more, status, code):
    assert api.refused("POST", "/servers", BODY | more) == (status, code)
    assert api.good("GET", "/servers")["servers"] == []
    assert api.good("GET", "/primary_ips")["primary_ips"] == []


def test_image_architecture_follows_the_type(api):
    server = api.server(api.create(server_type="cax11"))
    assert (server["image"]["id"], server["image"]["architecture"]) == (161547270, "arm")


def test_names_are_unique(api):
    api.create("n1")
    assert api.refused("POST", "/servers", BODY) == (409, "uniqueness_error")
    other = api.create("n2")
    assert api.refused("PUT", f"/servers/{other}", {"name": "n1"}) == (409, "uniqueness_error")
    assert api.good("PUT", f"/servers/{other}", {"name": "n2", "labels": {"a": "b"}})["server"]["labels"] == {"a": "b"}


def test_server_limit(lab):
    api = Api(lab(settings=Settings(server_limit=1)))
    api.create("n1")
    assert api.refused("POST", "/servers", BODY | {"name": "n2"}) == (403, "resource_limit_exceeded")


def test_locked_while_an_action_runs(api, server):
    hold(api, command="enable_rescue")
    action = api.good("POST", f"/servers/{server}/actions/enable_rescue", {})["action"]
    assert api.server(server)["locked"]
    assert not api.server(server)["rescue_enabled"], "armed only when the action has ended"
    for path in ("poweron", "reset", "enable_rescue", "disable_rescue", "create_image", "shutdown"):
        assert api.refused("POST", f"/servers/{server}/actions/{path}", {}) == (423, "locked")
    assert api.refused("DELETE", f"/servers/{server}") == (423, "locked")
    release(api)
    assert api.wait(action)["status"] == "success"
    seen = api.server(server)
    assert (seen["locked"], seen["rescue_enabled"]) == (False, True)


def test_states_of_create_and_start(api):
    hold(api, command="create_server")
    server = api.create(wait=False, start_after_create=True)
    assert api.server(server)["status"] == "initializing"
    api.lab.control("POST", "/faults", {"point": "action", "command": "start_server", "effect": "slow", "delay": 0.3})
    hold(api, command="start_server")
    release(api)
    assert api.until(server, status="running")["locked"] in (True, False)
    api.until(server, locked=False)


def test_starting_until_the_start_action_ends(over, api, server):
    api.lab.control("POST", "/faults", {"point": "action", "command": "start_server", "effect": "slow", "delay": 3600})
    action = api.good("POST", f"/servers/{server}/actions/poweron")["action"]
    api.until(server, status="starting")
    over.set()
    api.wait(action)
    assert api.server(server)["status"] == "running"


def test_poweron_twice_changes_nothing(api, server):
    assert api.act(server, "poweron")["status"] == "success"
    assert api.act(server, "poweron")["status"] == "success"
    assert api.boots() == ["disk"]


def test_rescue_is_taken_by_exactly_one_boot(api):
    server, key = api.create(), api.key()
    api.act(server, "enable_rescue", {"type": "linux64", "ssh_keys": [key]})
    api.act(server, "poweron")
    assert not api.server(server)["rescue_enabled"]
    api.act(server, "reset")
    assert api.boots() == ["rescue", "disk"]


def test_rescue_gets_exactly_the_armed_keys(api):
    first, second = api.key("k1"), api.key("k2")
    server = api.create(ssh_keys=["k1"])
    api.act(server, "enable_rescue", {"ssh_keys": [second]})
    api.act(server, "poweron")
    public = api.good("GET", f"/ssh_keys/{second}")["ssh_key"]["public_key"]
    (boot,) = api.lab.control("GET", "/machines")["machines"][0]["boots"]
    assert boot["authorized_keys"] == [public], "not the key of the create request"
    assert first != second


def test_rescue_can_be_armed_while_running_and_waits_for_the_reset(api):
    server = api.create(start_after_create=True)
    api.act(server, "enable_rescue", {})
    assert api.server(server)["rescue_enabled"]
    api.act(server, "reset")
    assert api.boots() == ["disk", "rescue"]


def test_rescue_expires(lab, monkeypatch):
    api = Api(lab(settings=Settings(rescue_lifetime=3600)))
    server = api.create()
    api.act(server, "enable_rescue", {})
    began = resources.now()
    for minutes, armed in ((50, True), (70, False)):
        monkeypatch.setattr(resources, "now", lambda passed=timedelta(minutes=minutes): began + passed)
        assert api.server(server)["rescue_enabled"] is armed
    api.act(server, "poweron")
    assert api.boots() == ["disk"]


@pytest.mark.parametrize(
    "body", [{"type": "linux32"}, {"ssh_keys": ["name"]}, {"ssh_keys": 5}, {"ssh_keys": [1]}, {"key": 1}]
)
def test_rescue_refusals(api, body, server):
    assert api.refused("POST", f"/servers/{server}/actions/enable_rescue", body) == (422, "invalid_input")


def test_power(api, server):
    assert api.act(server, "poweron")["command"] == "start_server"
    assert api.act(server, "shutdown")["command"] == "shutdown_server"
    api.until(server, status="off")
    assert api.act(server, "poweroff")["command"] == "stop_server"
    assert api.act(server, "reset")["command"] == "reset_server"
    assert api.server(server)["status"] == "running"
    assert api.act(server, "reboot")["command"] == "reboot_server"
    assert api.act(server, "poweroff")["status"] == "success"
    assert api.server(server)["status"] == "off"
    assert api.boots() == ["disk", "disk", "disk"]


def test_poweroff_while_the_firmware_counts(api, server):
    api.lab.control("POST", "/faults", {"point": "boot", "effect": "slow", "delay": 3600})
    api.act(server, "poweron")
    assert api.server(server)["status"] == "running", "the API cannot see that the guest has not started yet"
    api.act(server, "poweroff")
    api.act(server, "poweron")
    assert api.boots() == ["disk"], "the first boot never came"


def test_delete(api, server):
    answer = api.good("DELETE", f"/servers/{server}")
    assert answer["action"]["command"] == "delete_server"
    assert api.wait(answer["action"])["status"] == "success", "the action outlives the server"
    assert api.refused("GET", f"/servers/{server}") == (404, "not_found")
    assert api.refused("GET", f"/servers/{server}/actions") == (404, "not_found")
    assert api.good("GET", "/primary_ips")["primary_ips"] == []


def test_addresses_are_used_again(api):
    first = api.create("n1")
    address = api.server(first)["public_net"]["ipv4"]["ip"]
    api.wait(api.good("DELETE", f"/servers/{first}")["action"])
    second = api.create("n2")
    assert api.server(second)["public_net"]["ipv4"]["ip"] == address
    assert second != first


def test_without_public_ipv4(api):
    server = api.server(api.create(public_net={"enable_ipv4": False, "enable_ipv6": True}))
    assert server["public_net"]["ipv4"] is None
    assert server["public_net"]["ipv6"]["ip"].endswith("/64")


def test_placement_group_holds_ten(api):
    group = api.good("POST", "/placement_groups", {"name": "pg", "type": "spread"})["placement_group"]["id"]
    for number in range(10):
        api.create(f"n{number}", placement_group=group)
    body = BODY | {"name": "n10", "placement_group": group}
    assert api.refused("POST", "/servers", body) == (403, "resource_limit_exceeded")
    assert len(api.good("GET", f"/placement_groups/{group}")["placement_group"]["servers"]) == 10
