# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`--check` of every playbook, on machines in every state: it says what it would do, or one error, and only asks."""

from pathlib import Path

import pytest

from tests.integration.accounts import CloudAccount, RobotAccount
from tests.integration.runs import QUICK
from tests.integration.testbeds import NOWHERE

CHECK = ("--check", "--diff")
COMMAND = {"kubenode_image_url": NOWHERE, "kubenode_image_url_command": "image-url-command-raw-disk"}
DISKS = {"kubenode_root_device_hints": {"smallest": True}}
BASE = {"name": "debian-12", "image_url": NOWHERE, "command": "image-url-command-rootfs-tar"}
IMAGES = {"kubenode_image_matrix": {"kubernetes": ["1.36.4"], "base": [BASE], "architecture": ["x86"]}}


def files(folder: Path) -> set[str]:
    """What the controller keeps of machines."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and "locks" not in path.parts}


class _Checks:
    """Runs of playbooks in check mode, and a look at what they asked for."""

    def checked(self, playbook: str, *hosts: str, **shared: object):
        """The run; it has changed nothing at the providers', and kept nothing of the machines."""
        kept = self.folder / "kubenode"
        before = files(kept) if kept.exists() else set()
        self.forget_requests()
        shared = {"kubenode_dir": str(kept), "ansible_ssh_private_key_file": str(self.key), **shared}
        done = self.play(f"kubenode.provision.{playbook}", *CHECK, hosts=hosts, shared=shared, env=QUICK)
        assert [one for one in self.asked() if one["method"] not in ("GET", "HEAD")] == [], done.output
        assert (files(kept) if kept.exists() else set()) - before == set()
        assert "Traceback" not in done.output
        assert "The error was" not in done.output
        self.said = " ".join(done.output.split())
        return done


class Cloud(_Checks, CloudAccount):
    """A project with machines that exist or not, are off, on, or armed."""

    def machines(self, *names: str, start: bool = False) -> None:
        """Servers of ours; only those that were started ever ran."""
        given = [{"name": name, "server_type": "cx23", "ssh_keys": [self.key_name]} for name in names]
        state = "started" if start else "present"
        self.process("hcloud_machine", machines=given, state=state).ok()

    def written(self, playbook: str, *hosts: str, **more: object):
        """A check of a playbook that makes machines."""
        settings = {
            "kubenode_server_type": "cx23", "kubenode_ssh_keys": [self.key_name], "kubenode_rescue_timeout": 2,
            "kubenode_boot_timeout": 2, "ansible_user": "root",
        }  # fmt: skip
        return self.checked(playbook, *hosts, **settings, **more)


class Robot(_Checks, RobotAccount):
    """Dedicated servers that do not answer."""

    def written(self, playbook: str, *hosts: str, **more: object):
        """A check of a playbook for dedicated servers."""
        for name in hosts:
            self.hosts[name] = {"kubenode_server_number": self.numbers[name]}
        return self.checked(playbook, *hosts, kubenode_look_timeout=0, **more)


@pytest.fixture
def cloud(lab_dry, tmp_path):
    account = Cloud(lab_dry, tmp_path)
    yield account
    account.close()


@pytest.fixture
def robot(lab_dry, tmp_path):
    account = Robot(lab_dry, tmp_path)
    yield account
    account.close()


def test_an_image_command_on_cloud_machines(cloud):
    """Check mode predicts machines that do not exist or never ran; what a running one runs is unknown."""
    cloud.machines("off-1")
    cloud.machines("on-1", "armed-1", start=True)
    cloud.act("armed-1", "enable_rescue", {"type": "linux64", "ssh_keys": [cloud.key_id]})
    done = cloud.written("hcloud_image_url", "new-1", "off-1", **COMMAND).ok()
    for name in ("new-1", "off-1"):
        assert f"{name}: would run " in done.output
        assert f"{name}: would reboot" in done.output
    cloud.written("hcloud_image_url", "on-1", "armed-1", **COMMAND).fails()
    for name in ("on-1", "armed-1"):
        assert f"server '{name}' runs, but for 2 s it was not clear which system" in cloud.said
        assert f'name it: -e \'{{\\"kubenode_reinstall\\": [\\"{name}\\"]}}\'' in cloud.said
    cloud.written("hcloud_image_name", "new-1", "off-1", "on-1", kubenode_image_name="debian-12").ok()
    assert "would create the server, would power on; then its system" in cloud.said
    assert "exists, would power on; then its system" in cloud.said
    assert "exists; then its system" in cloud.said


@pytest.mark.parametrize("playbook", ["node_image_snapshot", "node_image_tarball"])
def test_node_images_that_do_not_exist(cloud, playbook):
    cloud.written(playbook, **IMAGES).ok()
    assert "would " in cloud.said
    assert cloud.servers() == {}


LAYOUT = {"kubenode_image": {"name": "Debian-1200-bookworm-amd64-base.tar.gz"}}


@pytest.mark.parametrize(
    ("playbook", "variables", "then"),
    [
        ("robot_image_url", {**COMMAND, **DISKS}, "its disks would be looked at, written and booted"),
        ("robot_installimage", {**LAYOUT, **DISKS}, "its disks would be looked at, written and booted"),
        ("robot_inspect", {}, "its disks would be listed"),
    ],
)
def test_dedicated_servers_that_do_not_answer(robot, playbook, variables, then):
    robot.add("on-1", "armed-1")
    robot.add("off-1", powered=False, reset=["power"], wol=False)
    robot.arm("armed-1")
    robot.written(playbook, "on-1", "armed-1", **variables).fails()
    assert robot.said.count('"msg": "we cannot tell what it runs') == 2
    assert "permit its reset into the rescue, which changes no disk: -e kubenode_first_contact=reset" in robot.said
    allowed = {**variables, "kubenode_first_contact": "reset"}
    hosts = ["on-1", "armed-1"] if playbook == "robot_inspect" else ["on-1", "armed-1", "off-1"]
    robot.written(playbook, *hosts, **allowed).ok()
    assert robot.said.count("would arm the rescue and reset by ") == len(hosts)
    assert robot.said.count(f"; then {then}") == len(hosts)
    assert [robot.boots(name) for name in ("on-1", "off-1")] == [robot.boots("armed-1"), []]
