# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""site on machines that never answer: what it would do, what it refuses, and which batch is the last."""

import json
from typing import Any

import pytest

from tests.integration.accounts import CloudAccount, RobotAccount
from tests.integration.runs import QUICK, Run
from tests.integration.testbeds import NOWHERE

CLOUD = ("cloud-1", "cloud-2", "cloud-3")
METAL = ("mirrored-1", "written-1")


class Fleet(CloudAccount):
    """Two cloud machines that an image command writes, one of a node image, and two dedicated servers; none runs."""

    def __init__(self, lab: Any, folder: Any) -> None:
        super().__init__(lab, folder)
        metal = folder / "metal"
        metal.mkdir()
        self.metal = RobotAccount(lab, metal)
        self.metal.add(*METAL, powered=False, reset=["power"], wol=False)
        of_metal = {"kubenode_root_device_hints": {"smallest": True}, "kubenode_look_timeout": 0}
        for name in METAL:
            self.hosts[name] = {"kubenode_server_number": self.metal.numbers[name], "zone": "z", **of_metal}
        self.hosts["mirrored-1"]["kubenode_image"] = {"name": "Debian-1200-bookworm-amd64-base.tar.gz"}
        for name, zone in zip(CLOUD, ("x", "y", "x"), strict=True):
            self.hosts[name] = {"kubenode_server_type": "cx23", "kubenode_ssh_keys": [self.key_name], "zone": zone}
        self.hosts["cloud-3"]["kubenode_image_name"] = "debian-12"
        for name in ("cloud-1", "cloud-2", "written-1"):
            self.hosts[name].update(kubenode_image_url=NOWHERE, kubenode_image_url_command="image-url-command-raw-disk")

    def site(self, *flags: str, **variables: Any) -> Run:
        """A run of the playbook; ``variables`` of the inventory."""
        shared = {
            "kubenode_dir": str(self.folder / "kubenode"), "ansible_ssh_private_key_file": str(self.key),
            "ansible_user": "root", "kubenode_rescue_timeout": 2, "kubenode_boot_timeout": 2,
            "kubenode_give_back_after": 1, "kubenode_power_reset_timeout": 1,
            "join_api_server": "https://192.0.2.9:6443", "join_ca_cert": "", "join_token": "abcdef.0123456789abcdef",
            "join_discovery": {"ca_hashes": ["sha256:" + "0" * 64]}, **variables,
        }  # fmt: skip
        self.forget_requests()
        report = {
            "ANSIBLE_CALLBACKS_ENABLED": "recorder,kubenode.provision.provision_report",
            "KUBENODE_REPORT_FILE": str(self.folder / "report.json"),
        }
        done = self.play("kubenode.provision.site", *flags, shared=shared, env={**QUICK, **report})
        assert "Traceback" not in done.output
        assert "The error was" not in done.output
        self.said = " ".join(done.output.split())
        return done

    def changes(self) -> list[str]:
        """The requests that changed something at the providers'."""
        return [f"{one['method']} {one['path']}" for one in self.asked() if one["method"] not in ("GET", "HEAD")]

    def close(self) -> None:
        super().close()
        self.metal.stop()


@pytest.fixture
def fleet(lab_dry, tmp_path):
    fleet = Fleet(lab_dry, tmp_path)
    yield fleet
    fleet.close()


def test_check_mode_says_what_becomes_of_machines_that_do_not_exist(fleet):
    fleet.site("--check", "--diff", kubenode_serial="zone").ok()
    assert fleet.changes() == []
    assert fleet.servers() == {}
    for number, (zone, names) in enumerate({"x": ("cloud-1", "cloud-3"), "y": ("cloud-2",), "z": METAL}.items(), 1):
        assert f"batch {number} of 3 (zone {zone}): checked: {', '.join(names)}" in fleet.said
    assert fleet.said.count("then base and join would make a node of it") == 5
    for name in ("cloud-1", "cloud-2"):
        assert f"{name}: would run " in fleet.said
    assert "would create the server, would power on; then its system" in fleet.said
    assert fleet.said.count("would arm the rescue") == 2


def test_a_tag_of_base_leaves_out_no_check_and_makes_nothing(fleet):
    fleet.site("--tags", "base").ok()
    assert (fleet.changes(), fleet.servers()) == ([], {})
    # the look at the project is in files that are included
    assert any(one["path"].endswith("/server_types") for one in fleet.requests())
    assert "no task of this playbook, but for those that check and lock, has the tags base" in fleet.said


def test_a_batch_that_fails_is_the_last_and_says_which_machines_it_kept_from_beginning(fleet):
    fleet.fault(
        point="request",
        path="/servers",
        method="POST",
        status=422,
        code="invalid_input",
        message="no such thing here",
        times=9,
    )
    done = fleet.site("-e", "kubenode_hosts=cloud-1:cloud-2:cloud-3", kubenode_serial="zone").fails()
    assert fleet.servers() == {}
    asked = [one for one in fleet.requests() if one["method"] == "POST" and one["path"].endswith("/servers")]
    assert len(asked) == 2, "both machines of the first batch, and none of the second"
    assert done.of("cloud-2", "failed") == []
    assert "batch 2" not in fleet.said
    assert "Not attempted: cloud-2" in fleet.said
    report = json.loads((fleet.folder / "report.json").read_text())
    assert ({one["name"]: one["failed"] for one in report["machines"]}, report["not_attempted"], report["phases"]) == (
        {"cloud-1": True, "cloud-3": True}, ["cloud-2"], [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"kubenode_server_type": "cx9000"}, "cx9000"),
        ({"kubenode_image_url": None, "kubenode_image_name": "no-such-image"}, "no-such-image"),
        ({"kubenode_serial": "zones"}, "kubenode_serial is zones, which is no variable of any host of this run"),
        ({"base_kubernetes_version": "1.x"}, "base_kubernetes_version"),
        ({"join_api_server": "nowhere"}, "join_api_server"),
        ({"kubenode_bootstrap_data_file": "not-there.yml"}, "not-there.yml"),
        ({"kubenode_image_url": None}, "nothing says how cloud-2 is made: a cloud machine needs kubenode_image_name"),
    ],
)
def test_what_is_wrong_in_any_batch_is_said_before_the_first_machine_is_touched(fleet, variables, words):
    fleet.hosts["cloud-2"].update({name: value for name, value in variables.items() if name != "kubenode_serial"})
    fleet.site(kubenode_serial=variables.get("kubenode_serial", 1)).fails()
    assert words in fleet.said
    assert fleet.changes() == []
    assert fleet.servers() == {}


@pytest.mark.cluster
def test_a_node_in_the_way_of_a_new_system_is_named_before_anything_is_made(fleet):
    plane = fleet.lab.cluster()
    for name in ("cloud-3", "mirrored-1", "written-1"):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        plane.kubectl("create", "-f", "-", text=json.dumps(node))
    given = {"join_token": "", "join_token_create": {"kubeconfig": str(plane.kubeconfig)}}
    for flags in (["--check"], []):
        fleet.site(*flags, kubenode_reinstall=["written-1"], **given).fails()
        for name in ("cloud-3", "written-1"):
            assert f"there is a Node {name} in its cluster, and a new system is another machine there" in fleet.said
        assert "there is a Node mirrored-1" not in fleet.said  # it may run what registered it
        assert (fleet.changes(), fleet.servers()) == ([], {})
    fleet.site("--check", kubenode_reinstall=["written-1"], join_check_name=False, **given).ok()
