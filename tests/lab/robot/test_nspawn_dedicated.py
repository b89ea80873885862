# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers that really boot: what Robot says of the rescue is what OpenSSH meets there."""

import base64
import contextlib
import hashlib
import os
import socket
import subprocess

import pytest

from tests.key_pairs import key_pair
from tests.lab.robot.conftest import Robot
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(1200)]


class Guest:
    """One dedicated server, reached by the OpenSSH client."""

    def __init__(self, lab, folder, **spec):
        self.robot = Robot(lab)
        self.folder = folder
        public = key_pair(folder / "key")
        (machine,) = lab.dedicated(**spec)
        self.number, self.address = machine["number"], machine["address"]
        self.fingerprint = self.robot.key(str(self.number), public)

    def scan(self):
        """The host keys that sshd shows, as ssh-keyscan prints them, once it answers."""

        def shown():
            command = ["ssh-keyscan", "-T", "20", self.address]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            lines = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
            return lines if len(lines) >= 3 else None

        return until(shown, f"host keys of {self.address}", seconds=300)

    def answers(self):
        """Whether something says that it is SSH; an installed system shows as many host keys as it likes."""
        with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=60) as connection:
            return connection.recv(4) == b"SSH-"
        return False

    def ssh(self, command, *options, askpass=None):
        """One attempt; only host keys of the file ``known`` are accepted."""
        words = ["-F", "none", "-o", f"UserKnownHostsFile={self.folder / 'known'}", "-o", "StrictHostKeyChecking=yes"]
        words += ["-o", "ConnectTimeout=60", "-o", "LogLevel=ERROR", "-o", "IdentityAgent=none", *options]
        env = os.environ | ({"SSH_ASKPASS": askpass, "SSH_ASKPASS_REQUIRE": "force"} if askpass else {})
        return subprocess.run(
            ["ssh", *words, f"root@{self.address}", command],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def by_key(self, command):
        """The output of a command, logged in by key."""
        done = self.ssh(command, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", str(self.folder / "key"))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def by_password(self, command, password):
        """Exit status and output of a command, logged in by password."""
        script = self.folder / "askpass"
        script.write_text(f"#!/bin/sh\necho '{password}'\n")
        script.chmod(0o700)
        done = self.ssh(command, "-o", "PubkeyAuthentication=no", askpass=str(script))
        return done.returncode, done.stdout

    def arrive(self):
        """Trust exactly what Robot reports, after comparing it with what sshd shows; returns the lines."""
        lines = self.scan()
        reported = {entry["key"]["fingerprint"] for entry in self.robot.last(self.number)["host_key"]}
        shown = {_fingerprint(line) for line in lines}
        assert shown == reported
        (self.folder / "known").write_text("".join(f"{line}\n" for line in lines))
        return lines


def _fingerprint(line):
    """SHA-256 of a key that ssh-keyscan printed, in base64 without padding."""
    return base64.b64encode(hashlib.sha256(base64.b64decode(line.split()[2])).digest()).decode().rstrip("=")


@pytest.fixture
def guest(lab_nspawn, tmp_path):
    """Make one dedicated server; it is removed after the test."""
    with contextlib.ExitStack() as stack:

        def make(**spec):
            made = Guest(lab_nspawn, tmp_path, **spec)
            stack.callback(made.robot.good, "DELETE", f"/key/{made.fingerprint}")
            stack.callback(lab_nspawn.control, "DELETE", f"/dedicated/{made.number}")
            return made

        yield make


def test_rescue_of_an_empty_server(guest):
    server = guest(disks=[{"size": "1G", "kind": "nvme"}, {"size": "2G", "kind": "sata"}])
    robot, number = server.robot, server.number
    machine = robot.machine(number)
    assert (machine["powered"], machine["boots"][0]["source"]) == (True, "disk")
    password = robot.arm(number, server.fingerprint)["password"]
    robot.reset(number, "sw")  # a firmware that found nothing to boot listens to the keyboard
    first = server.arrive()
    assert server.by_key("hostname") == "rescue\n"
    assert server.by_key("test -x /root/.oldroot/nfs/install/installimage && ls /root/.oldroot/nfs/images") == (
        "Debian-1200-bookworm-amd64-base.tar.zst\n"
    )
    assert server.by_password("hostname", password) == (0, "rescue\n")
    assert server.by_password("true", "wrong")[0] == 255
    sizes = server.by_key("lsblk -bdno NAME,SIZE,SERIAL").splitlines()
    assert sorted(line.split() for line in sizes) == sorted(
        [name, str(disk["size"]), disk["serial"]]
        for name, disk in zip(("nvme0n1", "sda"), machine["disks"], strict=True)
    )

    server.by_key("echo kept | dd of=/dev/sda conv=fsync status=none")
    robot.arm(number, server.fingerprint)
    robot.reset(number, "sw")  # the rescue's own init listens
    robot.until(lambda: robot.boots(number) == ["disk", "rescue", "rescue"], "the third boot")
    robot.until(lambda: not set(first) & set(server.scan()), "other host keys")
    server.arrive()
    assert server.by_key("head -c 4 /dev/sda") == "kept"


@pytest.mark.long
def test_buttons_of_an_installed_server(guest):
    server = guest(image="debian", disks=[{"size": "4G", "kind": "sata"}])
    robot, number = server.robot, server.number
    robot.until(server.answers, "an answer by SSH")
    before = robot.lab.control("POST", f"/machines/{number}/marks", {})["marks"]
    assert [len(mark) for mark in before] == [64]
    robot.reset(number, "power")
    robot.until(lambda: robot.status(number) == "shut off", "power off")
    robot.reset(number, "hw")
    after = robot.lab.control("POST", f"/machines/{number}/marks", {})["marks"]
    assert after != before, "a system that ran wrote to its disk"
    assert robot.status(number) == "shut off", "the reset button switches nothing on"
    robot.arm(number, server.fingerprint)
    robot.reset(number, "power")
    server.arrive()
    assert server.by_key("hostname") == "rescue\n"
    assert robot.boots(number) == ["disk", "rescue"]
