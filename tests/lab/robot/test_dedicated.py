# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers come and go: by the lab's own routes, its fixtures and its command line."""

import hashlib
import stat
from pathlib import Path

import pytest
import requests
import yaml

from lab.cluster.control_plane import keep_port
from lab.robot.account import RobotSettings
from lab.robot.tls import HOST
from lab.state import LabClientError
from tests.lab.api.conftest import Api

CHECKOUT = Path(__file__).resolve().parents[3]
MIB = 1 << 20


def test_what_the_lab_tells(robot):
    disks = [{"size": "2M", "kind": "nvme", "serial": "A1"}, {"size": "1M", "kind": "sata", "rotational": True}]
    (machine,) = robot.lab.dedicated(number=4711, name="n1", disks=disks, reset=["hw"], powered=False)
    assert machine == robot.machine(4711)
    expected = {"kind": "dedicated", "number": 4711, "name": "n1", "powered": False, "running": False, "boots": []}
    assert {name: machine[name] for name in expected} == expected
    assert [(disk["kind"], disk["size"], disk["rotational"]) for disk in machine["disks"]] == [
        ("nvme", 2 * MIB, False),
        ("sata", MIB, True),
    ]
    assert machine["disks"][0]["serial"] == "A1"
    assert robot.lab.control("GET", "/status")["dedicated"] == 1


def test_digests_are_of_the_content_now(robot, tmp_path):
    image = tmp_path / "disk.raw"
    image.write_bytes(b"system")
    robot.lab.dedicated(number=1, image=str(image), disks=[{"size": "1M", "kind": "sata"}] * 2)
    first, second = robot.lab.control("GET", "/dedicated/1/disks")["disks"]
    assert first["sha256"] == hashlib.sha256(b"system".ljust(MIB, b"\0")).hexdigest()
    assert second["sha256"] == hashlib.sha256(bytes(MIB)).hexdigest()
    assert first["wwn"] != second["wwn"]


def test_many_at_once_beside_cloud_servers(robot):
    cloud = Api(robot.lab)
    cloud.create("c1")
    machines = robot.lab.dedicated({"name": "a"}, {"name": "b"}, disks=[{"size": "1M", "kind": "sata"}])
    cloud.create("c2")
    rows = robot.lab.control("GET", "/machines")["machines"]
    assert sorted(row["name"] for row in rows) == ["a", "b", "c1", "c2"]
    assert len({row["address"] for row in rows}) == 4
    assert [machine["name"] for machine in machines] == ["a", "b"]


def test_removed_servers_are_gone_and_leave_their_address(robot, server):
    before = robot.machine(server)["address"]
    robot.lab.control("DELETE", f"/dedicated/{server}")
    assert robot.refused("GET", f"/server/{server}") == (404, "SERVER_NOT_FOUND")
    assert list(robot.lab.lab.backend.disks.glob("m4711*")) == []
    (again,) = robot.lab.dedicated(number=server)
    assert (again["address"], [boot["source"] for boot in again["boots"]]) == (before, ["disk"])
    with pytest.raises(LabClientError, match="HTTP 404"):
        robot.lab.control("DELETE", "/dedicated/1")


def test_all_or_nothing(robot, server):
    with pytest.raises(LabClientError, match=r"HTTP 422: .*server number 4711 is taken"):
        robot.lab.dedicated({"number": 1}, {"number": 4711})
    with pytest.raises(LabClientError, match=r"HTTP 422: .*dedicated machine 2 \('x'\): .*'colour'"):
        robot.lab.dedicated({}, {"name": "x", "colour": 1})
    with pytest.raises(LabClientError, match=r"image '/nowhere' is no file"):
        robot.lab.dedicated({}, {"image": "/nowhere"})
    assert len(robot.good("GET", "/server")) == 1


def test_an_image_must_fit(robot, tmp_path):
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(MIB + 512))
    with pytest.raises(LabClientError, match=r"has 1049088 bytes, the first disk 1048576 bytes"):
        robot.lab.dedicated(image=str(image), disks=[{"size": "1M", "kind": "sata"}])


def test_console(robot, server):
    assert "Booting from disk" in robot.lab.control("GET", "/machines/n1/console")
    assert "Booting from disk" in robot.lab.control("GET", f"/machines/{server}/console")


def test_delays_are_those_of_dedicated_servers(lab):
    running = lab(kind="dry", profile="hetzner", robot_settings=RobotSettings())
    running.dedicated(number=1)
    robot = (running.robot_user, running.robot_password)
    requests.post(f"{running.robot_endpoint}/reset/1", {"type": "hw"}, auth=robot, timeout=600).raise_for_status()
    (delay,) = running.control("GET", "/delays")["machines"]["1"]["delays"]
    assert delay["what"] == "firmware_disk"
    assert 55 <= delay["seconds"] <= 90


def test_up_with_servers_and_tls(cli, tmp_path):
    (tmp_path / "fleet.yml").write_text(yaml.safe_dump([{"number": 5, "name": "n5"}, {"name": "n6"}]))
    robot = cli.up("--dedicated", tmp_path / "fleet.yml", "--robot-tls", tmp_path / "tls")["robot"]
    password_file = Path(robot["password_file"])
    assert stat.S_IMODE(password_file.stat().st_mode) == 0o600
    login = (robot["user"], password_file.read_text())
    assert len(requests.get(f"{robot['endpoint']}/server", auth=login, timeout=600).json()) == 2
    lines = dict(line.removeprefix("export ").split("=", 1) for line in cli.run("env").splitlines())
    assert lines["HROBOT_ENDPOINT"] == robot["endpoint"]
    assert lines["HROBOT_API_USER"] == "'#ws+lab'"
    assert lines["HROBOT_API_PASSWORD"].strip("'") == login[1]
    assert "#5" in cli.run("machines")

    tls = robot["tls"]
    assert (tls["host"], tls["ca_file"]) == (HOST, str(tmp_path / "tls" / "ca.pem"))
    secure = requests.get(f"{tls['endpoint']}/server/5", auth=login, verify=tls["ca_file"], timeout=600)
    assert secure.json()["server"]["server_name"] == "n5"
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{tls['endpoint']}/server/5", auth=login, timeout=600)
    assert stat.S_IMODE((tmp_path / "tls" / "server.key").stat().st_mode) == 0o600

    cli.run("down")
    assert not password_file.exists()


def test_password_and_port_of_the_users_choice(cli):
    with keep_port() as kept:
        port = kept.getsockname()[1]
        robot = cli.up("--robot-port", port, KUBENODE_LAB_ROBOT_PASSWORD="of-the-user")["robot"]
        assert robot["endpoint"] == f"http://127.0.0.1:{port}"
        for password, denied in (("another", True), ("of-the-user", False)):
            answer = requests.get(f"{robot['endpoint']}/server", auth=(robot["user"], password), timeout=600)
            assert (answer.status_code == 401) is denied
    assert Path(robot["password_file"]).read_text() == "of-the-user"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {disks: 3}", "dedicated machine 1: disks 3"),
        ("- {number: 1}\n- {number: 1}", "server number 1 is taken"),
        ("[", "--dedicated"),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_one_clear_error(cli, tmp_path, text, said):
    file = tmp_path / "fleet.yml"
    if text is not None:
        file.write_text(text)
    error = cli.fails("up", "--kind", "dry", "--dedicated", file)
    assert error.startswith(f"lab: --dedicated {file}: ")
    assert said in error
    assert "Traceback" not in error


def test_a_missing_image_is_one_clear_error(cli, tmp_path):
    (tmp_path / "fleet.yml").write_text("- {image: /nowhere}")
    error = cli.fails("up", "--kind", "dry", "--dedicated", tmp_path / "fleet.yml")
    assert error.splitlines()[-1].startswith("lab: dedicated machine 2000001: image '/nowhere' is no file")
    assert "Traceback" not in error
