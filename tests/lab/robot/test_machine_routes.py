# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people do at a machine, by the lab's own routes: boot order, disks, digests; on machines that are dry."""

import hashlib

import pytest
import requests

from lab.state import LabClientError


@pytest.fixture
def at(robot, server):
    """Call a route of the server."""

    def call(method, path, body=None, machine=server):
        return robot.lab.control(method, f"/machines/{machine}/{path}", body)

    return call


@pytest.fixture
def cloud(lab_dry):
    """A cloud server beside."""
    from tests.lab.api.conftest import Api

    Api(lab_dry).create("c1")
    return lab_dry


def test_boot_order(robot, server, at):
    assert robot.machine(server)["boot_order"] == [0, 1]
    assert at("POST", "boot-order", {"disks": [1]}) == {"boot_order": [1, 0]}
    assert robot.machine(server)["boot_order"] == [1, 0]
    assert at("POST", "boot-order", {"disks": []}, machine="n1") == {"boot_order": [0, 1]}
    for wrong in ([2], [0, 0], [-1]):
        with pytest.raises(LabClientError, match=r"422.*boot order"):
            at("POST", "boot-order", {"disks": wrong})
    with pytest.raises(LabClientError, match="422"):
        at("POST", "boot-order", {"order": [1]})
    with pytest.raises(LabClientError, match="404"):
        at("POST", "boot-order", {"disks": [1]}, machine="missing")


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "\udc80".encode("utf-8", "surrogatepass")])
def test_a_body_that_is_no_json_is_refused(robot, server, text):
    url = f"{robot.lab.endpoint.removesuffix('/v1')}/_lab/machines/{server}/boot-order"
    headers = {"Authorization": f"Bearer {robot.lab.token}", "Content-Type": "application/json"}
    answer = requests.post(url, data=text, headers=headers, timeout=600)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "json_error")


def test_boot_order_of_a_cloud_server(cloud):
    cloud.control("POST", "/machines/c1/disks", {"size": "2M"})
    assert cloud.control("POST", "/machines/c1/boot-order", {"disks": [1]}) == {"boot_order": [1, 0]}
    (row,) = cloud.control("GET", "/machines")["machines"]
    assert row["boot_order"] == [1, 0]


def test_disks_come_and_are_replaced(robot, server, at, tmp_path):
    image = tmp_path / "content.raw"
    image.write_bytes(b"brought along".ljust(1 << 20, b"\0"))
    before = at("GET", "disks")["disks"]
    after = at("POST", "disks", {"size": "4M", "kind": "sata", "serial": "MINE", "image": str(image)})["disks"]
    assert after[:2] == before
    assert (after[2]["serial"], after[2]["size"], after[2]["kind"]) == ("MINE", 4 << 20, "sata")
    whole = hashlib.sha256(image.read_bytes() + bytes(3 << 20)).hexdigest()
    assert at("POST", "digests", {"disk": 2}) == {"sha256": [whole]}

    with pytest.raises(LabClientError, match=r"422.*while it is off"):
        at("PUT", "disks/0", {"size": "8G"})
    robot.reset(server, "power_long")
    replaced = at("PUT", "disks/0", {"size": "2M", "image": str(image)})["disks"]
    assert replaced[1:] == after[1:]
    assert replaced[0]["serial"] not in {disk["serial"] for disk in after}
    assert replaced[0]["wwn"] not in {disk["wwn"] for disk in after}
    again = at("PUT", "disks/0", {"size": "2M"})["disks"]
    assert again[0]["serial"] != replaced[0]["serial"]
    assert at("POST", "digests", {}) == {"sha256": [hashlib.sha256(bytes(2 << 20)).hexdigest()]}


def test_marks_change_with_any_byte(robot, at, tmp_path):
    """Also where nothing was ever written, and not when zeros are written there."""
    marks, image = [], tmp_path / "content.raw"
    robot.reset(4711, "power_long")
    for content in (b"", b"\0" * 5, b"x", b"\0x", b"\0" * (3 << 20) + b"x"):
        image.write_bytes(content.ljust(5 << 20, b"\0"))
        at("PUT", "disks/0", {"size": "8M", "image": str(image)})
        marks.append(at("POST", "marks", {"ranges": [[0, 4], [1, 4 << 20], [0, 8 << 20]]})["marks"])
    assert marks[0] == marks[1]
    assert len({mark[2] for mark in marks}) == 4
    assert [mark[0] == marks[0][0] for mark in marks] == [True, True, False, False, True]
    assert [mark[1] == marks[0][1] for mark in marks] == [True, True, True, False, False]
    assert at("POST", "marks", {})["marks"] == [marks[-1][2]]


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", "disks", {"size": "1M", "image": "/nowhere.raw"}, "'/nowhere.raw' is no file"),
        ("POST", "disks", {"size": "17"}, "a disk has at least 1M"),
        ("POST", "disks", {"size": "1M", "colour": "red"}, "colour"),
        ("PUT", "disks/7", {"size": "1M"}, "'7' not found"),
        ("POST", "digests", {"disk": 9}, "'9' not found"),
        ("POST", "digests", {"ranges": [[0, 1 << 60]]}, "are not on a disk"),
        ("POST", "silence", {"on": True}, "has no SSH server"),
        ("POST", "enter", {"script": "true"}, "only running machines of kind nspawn"),
    ],
)
def test_refusals(at, method, path, body, words):
    with pytest.raises(LabClientError) as caught:
        at(method, path, body)
    assert words in str(caught.value)


def test_digests_of_ranges(robot, at, server, tmp_path):
    image = tmp_path / "content.raw"
    image.write_bytes(b"0123456789".ljust(1 << 20, b"\0"))
    at("POST", "disks", {"size": "1M", "image": str(image)})
    ranges = [[0, 4], [4, 6], [10, 0], [(1 << 20) - 1, 1]]
    assert at("POST", "digests", {"disk": 2, "ranges": ranges})["sha256"] == [
        hashlib.sha256(part).hexdigest() for part in (b"0123", b"456789", b"", b"\0")
    ]
