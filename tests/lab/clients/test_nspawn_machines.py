# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official client and plain OpenSSH against machines that really boot (kind nspawn)."""

import hcloud
import pytest
from hcloud.images import Image
from hcloud.server_types import ServerType

from tests.key_pairs import key_pair
from tests.waiting import until

pytestmark = pytest.mark.nspawn


class Machine:
    """One server of the client, and the person who has its key pair."""

    def __init__(self, client, lab, name):
        self.client, self.lab, self.name = client, lab, name
        self.person = lab.person(name)
        self.key = client.ssh_keys.create(name, self.person.public_key)
        answer = client.servers.create(
            name, ServerType(name="cx23"), Image(name="debian-12"), ssh_keys=[self.key], start_after_create=False
        )
        answer.action.wait_until_finished()
        self.server = client.servers.get_by_id(answer.server.id)

    def remove(self):
        self.server.delete().wait_until_finished()
        self.key.delete()

    def ssh_once(self, command, key=None):
        return self.person.ssh(command, key or self.person.key, 300)

    def ssh(self, command, person=None):
        """The output of a command, as soon as SSH answers; on the machine of another person with the same key."""
        seen = []

        def done():
            seen.append((person or self.person).ssh(command, self.person.key, 300))
            return seen[-1].returncode == 0

        until(done, f"an answer to {command}", seconds=300, pause=0.1, show=lambda: seen[-1])
        return seen[-1].stdout

    def arm_and_start(self):
        self.server.enable_rescue("linux64", [self.key.id]).action.wait_until_finished()
        self.server.power_on().wait_until_finished()

    def boots(self):
        return [boot["source"] for boot in self.person.row()["boots"]]

    def until_off(self):
        def off():
            self.server.reload()
            return self.server.status == "off"

        until(off, f"{self.name} off", pause=0.2, show=lambda: self.server.status)


@pytest.fixture
def machine(lab_nspawn, request):
    client = hcloud.Client(lab_nspawn.token, api_endpoint=lab_nspawn.endpoint, poll_interval=0.1, poll_max_retries=3000)
    name = request.node.name.replace("_", "-")[:40].strip("-")
    machine = Machine(client, lab_nspawn, name)
    yield machine
    machine.remove()


def test_rescue_metadata_and_image_files(machine, tmp_path):
    machine.arm_and_start()
    assert machine.ssh("hostname") == "rescue\n"
    assert not machine.client.servers.get_by_id(machine.server.id).rescue_enabled
    other = tmp_path / "other"
    key_pair(other)
    assert machine.ssh_once("true", key=other).returncode == 255
    url = "http://169.254.169.254/hetzner/v1/metadata"
    assert machine.ssh(f"curl -sf {url}/instance-id {url}/hostname") == f"{machine.server.id}{machine.name}"
    listed = machine.ssh(f"curl -sf {machine.lab.images_url}/").split()
    assert {"debian.raw.zst", "debian.raw.zst.sha256"} <= set(listed)
    check = "head -c 4 /tmp/part | od -An -tx1; rm /tmp/part"
    assert machine.ssh(f"curl -sf -r 0-3 -o /tmp/part {machine.lab.images_url}/debian.raw.zst && {check}") == (
        " 28 b5 2f fd\n"
    ), "the magic number of zstd"


@pytest.mark.long
def test_write_reboot_shutdown_snapshot(machine):
    machine.arm_and_start()
    rescue_boot = machine.ssh("cat /proc/sys/kernel/random/boot_id")
    machine.ssh("blkdiscard -f /dev/sda || true; dd if=/dev/zero of=/dev/sda bs=1M count=4 2>/dev/null; sync")
    machine.ssh(f"curl -sf {machine.lab.images_url}/debian.raw.zst | zstd -dc | dd of=/dev/sda bs=4M 2>/dev/null; sync")
    machine.ssh_once("reboot")
    name = f"{machine.name}\n"
    until(lambda: machine.ssh_once("hostname").stdout == name, "an answer of the written system", seconds=300)
    assert machine.ssh("cat /proc/sys/kernel/random/boot_id") != rescue_boot
    assert machine.boots() == ["rescue", "disk"]
    machine.ssh("echo 4711 > /etc/mark; sync")

    machine.server.shutdown().wait_until_finished()
    machine.until_off()
    answer = machine.server.create_image(description="marked", type="snapshot")
    answer.action.wait_until_finished()
    image = machine.client.images.get_by_id(answer.image.id)
    assert image.image_size > 0

    name = f"{machine.name[:30]}-copy"
    copy = machine.client.servers.create(name, ServerType(name="cx33"), Image(id=image.id), ssh_keys=[machine.key])
    for action in (copy.action, *copy.next_actions):
        action.wait_until_finished()
    assert machine.ssh("cat /etc/mark", machine.lab.person(name)) == "4711\n"
    machine.client.servers.get_by_id(copy.server.id).delete().wait_until_finished()
    image.delete()


def test_power_off_inside_the_guest_is_seen_by_the_api(machine):
    machine.arm_and_start()
    machine.ssh("hostname")
    machine.ssh_once("poweroff")
    machine.until_off()
    machine.server.power_on().wait_until_finished()
    until(lambda: machine.boots() == ["rescue", "disk"], "the boot from the disk", show=machine.boots)


def test_hard_reset_enters_the_armed_rescue(machine):
    machine.arm_and_start()
    first = machine.ssh("cat /proc/sys/kernel/random/boot_id")
    machine.server.enable_rescue("linux64", [machine.key.id]).action.wait_until_finished()
    machine.server.reset().wait_until_finished()
    assert machine.ssh("cat /proc/sys/kernel/random/boot_id") != first
    assert machine.boots() == ["rescue", "rescue"]
