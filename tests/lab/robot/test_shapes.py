# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of Robot: fields, types, codes."""

import pytest

from tests.key_pairs import public_key

IDENTITY = {"server_ip": "127.66.0.1", "server_ipv6_net": "2001:db8:0:1::", "server_number": 4711}


def test_nothing_there_is_not_found_instead_of_an_empty_list(robot):
    for path in ("/server", "/reset", "/key", "/ip", "/subnet", "/rdns", "/failover", "/nothing/here"):
        assert robot.refused("GET", path) == (404, "NOT_FOUND")


def test_server(robot, server):
    (item,) = robot.good("GET", "/server")
    assert item["server"] == {
        **IDENTITY,
        "server_name": "n1",
        "product": "AX41-NVMe",
        "dc": "FSN1-DC8",
        "traffic": "unlimited",
        "status": "ready",
        "cancelled": False,
        "paid_until": "2099-12-31",
        "ip": ["127.66.0.1"],
        "subnet": [{"ip": "2001:db8:0:1::", "mask": "64"}],
    }
    details = robot.good("GET", "/server/4711")["server"]
    assert item["server"].items() <= details.items()
    assert {name: details[name] for name in ("reset", "rescue", "vnc", "windows", "plesk", "cpanel", "wol")} == {
        "reset": True,
        "rescue": True,
        "vnc": True,
        "windows": False,
        "plesk": False,
        "cpanel": False,
        "wol": True,
    }
    assert details["linked_storagebox"] is None
    assert robot.good("GET", "/server/127.66.0.1")["server"] == details


def test_rename(robot, server):
    assert robot.good("POST", "/server/4711", {"server_name": "new"})["server"]["server_name"] == "new"
    assert robot.good("GET", "/server/4711")["server"]["server_name"] == "new"
    error = robot("POST", "/server/4711").json()["error"]
    assert error == {
        "status": 400,
        "code": "INVALID_INPUT",
        "message": "invalid input",
        "missing": ["server_name"],
        "invalid": None,
    }
    assert robot.refused("POST", "/server/4711", {"server_name": "a\nb"}) == (400, "INVALID_INPUT")
    assert robot.refused("POST", "/server/1", {"server_name": "a"}) == (404, "SERVER_NOT_FOUND")
    as_json = robot("POST", "/server/4711", json={"server_name": "other"})
    assert as_json.json()["error"]["missing"] == ["server_name"], "bodies are forms"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"server_name=\xff%ff", "application/x-www-form-urlencoded; charset=utf-8"),
        (b"server_name=a", "application/x-www-form-urlencoded; charset=nonsense"),
        (b"--x--", "multipart/form-data; boundary=x"),
        (b"a=b&" * 5000, "application/x-www-form-urlencoded"),
        (b"", ""),
    ],
)
def test_bodies_that_are_no_form(robot, server, body, content_type):
    headers = {"Content-Type": content_type}
    assert robot.refused("POST", "/server/4711", body, headers=headers) == (400, "INVALID_INPUT")
    assert robot.good("GET", "/server/4711")["server"]["server_name"] == "n1"


def test_unknown_server(robot, server):
    for path in ("/server/1", "/boot/1", "/boot/1/rescue", "/boot/1/rescue/last", "/reset/1", "/wol/1", "/server/x"):
        assert robot.refused("GET", path) == (404, "SERVER_NOT_FOUND")


def test_wrong_method(robot, server):
    answer = robot("PUT", "/server/4711")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))


def test_boot_overview(robot, server):
    boot = robot.good("GET", "/boot/4711")["boot"]
    assert list(boot) == ["rescue", "linux", "vnc", "windows", "plesk", "cpanel"]
    assert boot["rescue"] == {
        **IDENTITY,
        "os": ["linux", "linuxold", "vkvm"],
        "arch": [64, 32],
        "active": False,
        "password": None,
        "authorized_key": [],
        "host_key": [],
        "boot_time": None,
    }
    assert isinstance(boot["linux"]["dist"], list)
    assert isinstance(boot["vnc"]["lang"], list)
    assert (boot["windows"], boot["plesk"], boot["cpanel"]) == (None, None, None)
    assert robot.refused("GET", "/boot/4711/windows") == (404, "BOOT_NOT_AVAILABLE")
    assert robot.refused("POST", "/boot/4711/cpanel") == (404, "BOOT_NOT_AVAILABLE")


def test_rescue_active_and_inactive(robot, server):
    fingerprint = robot.key("deploy")
    armed = robot.arm(4711, fingerprint)
    assert {name: armed[name] for name in ("os", "arch", "active", "host_key", "boot_time")} == {
        "os": "linux",
        "arch": 64,
        "active": True,
        "host_key": [],
        "boot_time": None,
    }
    assert armed["password"]
    assert armed["authorized_key"] == [
        {
            "key": {
                "name": "deploy",
                "fingerprint": fingerprint,
                "type": "ED25519",
                "size": 256,
                "created_at": "2026-09-21 16:13:20",
            }
        }
    ]
    assert robot.rescue(4711) == robot.last(4711) == armed
    off = robot.good("DELETE", "/boot/4711/rescue")["rescue"]
    assert (off["active"], off["password"], off["os"]) == (False, None, ["linux", "linuxold", "vkvm"])
    assert robot.last(4711) == armed | {"active": False}


def test_rescue_input(robot, server):
    def invalid(form):
        error = robot("POST", "/boot/4711/rescue", form).json()["error"]
        assert (error["status"], error["code"]) == (400, "INVALID_INPUT")
        return error["missing"], error["invalid"]

    assert invalid({}) == (["os"], None)
    assert invalid({"os": "windows"}) == (None, ["os"])
    assert invalid({"os": "linux", "arch": "16"}) == (None, ["arch"])
    assert invalid({"os": "linux", "authorized_key[]": [public_key()]}) == (None, ["authorized_key"])
    known = robot.key()
    assert invalid({"os": "vkvm", "authorized_key[]": [known]}) == (None, ["authorized_key"])
    assert invalid({"os": "linux", "authorized_key[]": [known, "00:11"]}) == (None, ["authorized_key"])
    assert robot.refused("GET", "/boot/4711/rescue/last") == (404, "NOT_FOUND")
    assert robot.good("POST", "/boot/4711/rescue", {"os": "vkvm"})["rescue"]["active"]


def test_lists_in_forms(robot, server):
    first, second = robot.key("a"), robot.key("b")
    for form in (
        [("os", "linux"), ("authorized_key[]", first), ("authorized_key[]", second)],
        {"os": "linux", "authorized_key[0]": first, "authorized_key[1]": second},
    ):
        keys = robot.good("POST", "/boot/4711/rescue", form)["rescue"]["authorized_key"]
        assert [key["key"]["fingerprint"] for key in keys] == [first, second]
        robot.good("DELETE", "/boot/4711/rescue")


def test_one_configuration_at_a_time(robot, server):
    linux = {"dist": "Debian 12 base", "lang": "en"}
    robot.arm(4711)
    assert robot.refused("POST", "/boot/4711/rescue", {"os": "linux"}) == (409, "BOOT_ALREADY_ENABLED")
    assert robot.refused("POST", "/boot/4711/linux", linux) == (409, "BOOT_BLOCKED")
    robot.good("DELETE", "/boot/4711/rescue")
    active = robot.good("POST", "/boot/4711/linux", linux)["linux"]
    assert (active["active"], active["dist"], active["lang"]) == (True, "Debian 12 base", "en")
    assert robot.refused("POST", "/boot/4711/rescue", {"os": "linux"}) == (409, "BOOT_BLOCKED")
    robot.good("DELETE", "/boot/4711/linux")
    assert robot.arm(4711)["active"]


def test_reset_shapes(robot, server):
    robot.lab.dedicated({"number": 1, "reset": ["hw", "man"], "operating_status": False}, {"number": 2, "reset": []})
    items = [item["reset"] for item in robot.good("GET", "/reset")]
    assert [(item["server_number"], item["type"]) for item in items] == [
        (1, ["hw", "man"]),
        (4711, ["sw", "hw", "power", "power_long", "man"]),
    ]
    assert "operating_status" not in items[0]
    assert (robot.status(1), robot.status(4711)) == ("not supported", "running")
    assert robot.reset(4711, "hw") == {**IDENTITY, "type": "hw"}
    assert robot("POST", "/reset/1", {"type": "sw"}).json()["error"]["invalid"] == ["type"]
    assert robot("POST", "/reset/1").json()["error"]["missing"] == ["type"]
    for method in ("GET", "POST"):
        assert robot.refused(method, "/reset/2", {"type": "hw"}) == (404, "RESET_NOT_AVAILABLE")


def test_wol_shapes(robot, server):
    robot.lab.dedicated(number=1, wol=False)
    assert robot.good("GET", "/wol/4711") == robot.good("POST", "/wol/4711") == {"wol": IDENTITY}
    for method in ("GET", "POST"):
        assert robot.refused(method, "/wol/1") == (404, "WOL_NOT_AVAILABLE")


def test_server_without_rescue(robot):
    robot.lab.dedicated(number=1, rescue=False)
    assert robot.good("GET", "/boot/1")["boot"]["rescue"] is None
    for method in ("GET", "POST", "DELETE"):
        assert robot.refused(method, "/boot/1/rescue") == (404, "BOOT_NOT_AVAILABLE")


def test_keys(robot):
    data = public_key("me@here")
    answer = robot("POST", "/key", {"name": "first", "data": data})
    assert answer.status_code == 201
    key = answer.json()["key"]
    assert key == {
        "name": "first",
        "fingerprint": key["fingerprint"],
        "type": "ED25519",
        "size": 256,
        "data": data.rpartition(" ")[0],
        "created_at": "2026-09-21 16:13:20",
    }
    assert len(key["fingerprint"].split(":")) == 16
    assert robot.refused("POST", "/key", {"name": "second", "data": data}) == (409, "KEY_ALREADY_EXISTS")
    other = robot.key("first")  # names may repeat, material may not
    assert [item["key"]["fingerprint"] for item in robot.good("GET", "/key")] == [key["fingerprint"], other]
    path = f"/key/{key['fingerprint']}"
    assert robot.good("POST", path, {"name": "renamed"})["key"]["name"] == "renamed"
    assert robot.good("GET", path.upper().replace("/KEY", "/key"))["key"] == key | {"name": "renamed"}
    assert robot.good("DELETE", path) is None
    assert robot.refused("GET", path) == (404, "NOT_FOUND")
    assert robot.refused("DELETE", path) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("form", "missing", "invalid"),
    [
        ({}, ["name", "data"], None),
        ({"name": "n"}, ["data"], None),
        ({"name": "n", "data": "ssh-ed25519 nonsense"}, None, ["data"]),
        ({"name": "n", "data": "/root/.ssh/id.pub"}, None, ["data"]),
        ({"name": "n", "data": "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAA"}, None, ["data"]),
    ],
)
def test_bad_keys(robot, form, missing, invalid):
    error = robot("POST", "/key", form).json()["error"]
    assert (error["code"], error["missing"], error["invalid"]) == ("INVALID_INPUT", missing, invalid)
